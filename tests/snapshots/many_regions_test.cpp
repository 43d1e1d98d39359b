// Many regions in one call.
#include "tests/doubles/fake_write_watch.hpp"
#include "tests/snapshots/support.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;
using doubles::FakeWriteWatches;
using doubles::WatchCall;

class ManyRegions : public ::testing::Test {
 protected:
  std::vector<Target> four_regions() const {
    std::vector<Target> targets;
    for (const std::uint32_t region : {7u, 2u, 9u, 4u})  // in no order
      targets.push_back({region, memory_.data() + region * 4 * kPage + region, 4 * kPage - 100});
    return targets;
  }
  Rig rig_{Backend::uring, {.device = 8192 * kKiB, .host = 0, .disk = 0}};
  Store& store_ = rig_.store();
  Pages memory_{64 * kPage};
};

TEST_F(ManyRegions, AreProtectedTogetherOrNotAtAll) {
  std::vector<Target> targets = four_regions();
  const Target right = targets[2];
  for (const Target wrong : {Target{2, right.data, right.bytes}, Target{9, memory_.data() + 2 * 4 * kPage, kPage},
                             Target{9, nullptr, kPage}}) {
    targets[2] = wrong;
    EXPECT_EQ(code_of(store_.protect(targets, {.zone = kPage})), Errc::invalid_argument);
    EXPECT_EQ(code_of(store_.snapshot(1)), Errc::invalid_argument) << "nothing is protected";
  }
  targets[2] = right;
  store_.protect(targets, {.zone = kPage}).value();
  EXPECT_EQ(code_of(store_.protect(targets, {.zone = kPage})), Errc::invalid_argument) << "again";
  std::fill_n(memory_.data(), memory_.bytes(), std::byte{5});
  ASSERT_TRUE(store_.snapshot(1).value().wait("ephemeral"));
  for (const Target& one : targets)
    EXPECT_EQ(stored(store_, 1, one.id), std::vector<std::byte>(one.bytes, std::byte{5})) << one.id;
  store_.unprotect(2).value();
  EXPECT_EQ(code_of(store_.unprotect(2)), Errc::invalid_argument);
  ASSERT_TRUE(store_.snapshot(2).value().wait("ephemeral"));
  EXPECT_EQ(store_.info(2).value().regions.size(), 3u);
  store_.unprotect_all().value();
  EXPECT_EQ(code_of(store_.snapshot(3)), Errc::invalid_argument) << "nothing is protected";
  EXPECT_EQ(store_.snapshot_stats().zones, 0u);
}

TEST_F(ManyRegions, AWatchThatFailsInBetweenLeavesNoneWatched) {
  const auto watches = std::make_shared<FakeWriteWatches>();
  snapshots_of(rig_, kPage, {.watches = watches});
  const std::vector<Target> targets = four_regions();
  for (const std::uint64_t good : {0, 1, 3}) {
    watches->faults().fail_nth(WatchCall::watch, good + 1, ENOMEM);
    EXPECT_EQ(code_of(store_.protect(targets, {.zone = kPage, .track = Track::faults})), Errc::out_of_memory);
    EXPECT_EQ(code_of(store_.snapshot(1)), Errc::invalid_argument) << "nothing is protected";
  }
  store_.protect(targets, {.zone = kPage, .track = Track::faults}).value();  // or they would be watched already
  ASSERT_TRUE(store_.snapshot(1).value().wait("ephemeral"));
  store_.unprotect_all().value();
}

}  // namespace
}  // namespace ebb::snapshots
