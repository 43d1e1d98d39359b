// A store that is used for days: what it remembers of each call does not grow for ever.
#include "support.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

TEST(LongUse, OfEachRestoreTheNewestAreRemembered) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, 8));
  std::byte bytes[8];
  const std::size_t many = 2 * Stats::kNewest + 100;
  for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(store.restore(1, {{0, bytes, 8}}, {.keep = true}));
  const Stats stats = store.stats();
  EXPECT_EQ(stats.restores, many);
  EXPECT_GE(stats.found_on.size(), Stats::kNewest);
  EXPECT_LE(stats.found_on.size(), 2 * Stats::kNewest);
  EXPECT_EQ(stats.prefetch_distance.size(), stats.found_on.size());
}

TEST(LongUse, AConsumedVersionIsStillToldFromOneThatNeverWas) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  for (Version v = 0; v < 100; ++v) {
    if (v % 10 == 5) continue;
    ASSERT_TRUE(write(store, v, 8));
    expect_restored(store, v, 8);
  }
  std::byte bytes[8];
  for (Version v = -1; v <= 100; ++v) {
    const bool was = v >= 0 && v < 100 && v % 10 != 5;
    EXPECT_EQ(code_of(store.restore(v, {{0, bytes, 8}})), was ? Errc::consumed : Errc::unknown_version) << v;
  }
  ASSERT_TRUE(store.drop(31));
  EXPECT_EQ(code_of(store.restore(31, {{0, bytes, 8}})), Errc::unknown_version);
  ASSERT_TRUE(write(store, 31, 8));
  expect_restored(store, 31, 8);
  EXPECT_EQ(code_of(store.restore(31, {{0, bytes, 8}})), Errc::consumed);
}

}  // namespace
}  // namespace ebb::runtime
