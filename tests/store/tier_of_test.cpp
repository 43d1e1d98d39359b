// Where a version is now.
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(TierOf, IsTheFastestThatHasAllOfTheVersion) {
  constexpr std::size_t kBytes = 200 * kKiB;  // the device cache has one of them
  Rig rig(Backend::threads, {.device = 256 * kKiB, .host = 1024 * kKiB});
  Store& store = rig.store();
  EXPECT_EQ(store.tier_of(1).value(), std::nullopt);
  for (const Version version : {1, 2}) {
    const auto bytes = bytes_of(version, kBytes);
    store.checkpoint(version, {{0, bytes.data(), bytes.size()}}).value();
  }
  const auto first = store.tier_of(1).value(), second = store.tier_of(2).value();
  EXPECT_TRUE((first == "device") != (second == "device"));
  EXPECT_TRUE((first == "host") != (second == "host"));
  store.drop(1).value();
  EXPECT_EQ(store.tier_of(1).value(), std::nullopt);
  store.close().value();
  EXPECT_EQ(store.tier_of(2).error().code, Errc::closed);
}

}  // namespace
}  // namespace ebb::store
