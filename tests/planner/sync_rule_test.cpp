// When files are synced, against what the documentation says, at each moment of random runs.
#include "planner/sync_rule.hpp"

#include <gtest/gtest.h>
#include <random>

namespace ebb::planner {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

TEST(SyncRule, NothingWaitsLongerThanTheIntervalAndWhatIsWantedOrMuchNotAtAll) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Unsynced waiting{
        .any = random() % 4 != 0, .wanted = random() % 3 == 0, .bytes = random() % (2 * kMostUnsynced)};
    const Time last = static_cast<Time>(random() % 1'000'000'000), at = sync_at(waiting, last, kSyncInterval);
    if (!waiting.any) {
      ASSERT_EQ(at, kNever);
    } else if (waiting.wanted || waiting.bytes >= kMostUnsynced) {
      ASSERT_LE(at, last);
    } else {
      ASSERT_EQ(at, last + kSyncInterval) << "fewer syncs than one for each of many small writes";
    }
  }
}

TEST(SyncRule, APoolIsCommittedWhenItsDiskRestsOrMuchOfItWaits) {
  const Bytes pool = 4096 * kMiB;
  EXPECT_FALSE(commit_pool({}, pool));
  EXPECT_TRUE(commit_pool({.any = true, .bytes = 1}, pool)) << "the disk rests";
  EXPECT_FALSE(commit_pool({.any = true, .bytes = 1, .moving = true}, pool));
  EXPECT_FALSE(commit_pool({.any = true, .bytes = 511 * kMiB, .moving = true}, pool));
  EXPECT_TRUE(commit_pool({.any = true, .bytes = 512 * kMiB, .moving = true}, pool)) << "an eighth of the pool waits";
  EXPECT_FALSE(commit_pool({.any = true, .bytes = 127 * kMiB, .moving = true}, 256 * kMiB));
  EXPECT_FALSE(commit_pool({.any = true, .bytes = 512 * kMiB, .commits = true}, pool)) << "one at a time";
}

TEST(SyncRule, WhatTheDiskRefusedIsTriedEachSecondAndAtOnceWhereThereMayBeRoom) {
  EXPECT_FALSE(try_again(false, 5, 1'000'000'004));
  EXPECT_TRUE(try_again(false, 5, 1'000'000'005));
  EXPECT_TRUE(try_again(true, 5, 5));
}

}  // namespace
}  // namespace ebb::planner
