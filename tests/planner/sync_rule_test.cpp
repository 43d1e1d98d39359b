// When files are synced, against what the documentation says, at each moment of random runs.
#include "planner/sync_rule.hpp"

#include <gtest/gtest.h>
#include <random>

#include "tests/planner/units.hpp"

namespace ebb::planner {
namespace {

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
  constexpr Time at = 7'000'000;
  EXPECT_EQ(commit_pool_at({.moved = at}, 64 * kMiB), kNever);
  for (const Bytes size : {64 * kMiB, 4096 * kMiB}) {
    EXPECT_EQ(commit_pool_at({.any = true, .bytes = 1, .moved = at}, size), at + kRest) << "the disk rests";
    EXPECT_EQ(commit_pool_at({.any = true, .bytes = size / 4 - 1, .moving = true, .moved = at}, size), kNever);
    for (const int commits : {0, 1, 2}) {
      const PoolWrites much{.any = true, .bytes = size / 4, .moving = true, .moved = at, .commits = commits};
      EXPECT_EQ(commit_pool_at(much, size), commits < 2 ? at : kNever) << "a quarter waits: two at a time";
    }
  }
}

TEST(SyncRule, WhatGoesThroughThePageCacheIsGatheredBeforeItIsSynced) {
  const Bytes pool = 64 * kMiB, held = 1024 * kMiB;
  EXPECT_EQ(commit_pool_at({.any = true, .bytes = held / 2 - 1, .moving = true, .held = held}, pool), kNever);
  EXPECT_EQ(commit_pool_at({.any = true, .bytes = held / 2, .moving = true, .moved = 5, .held = held}, pool), 5);
  EXPECT_EQ(commit_pool_at({.any = true, .bytes = 1, .moved = 5, .held = held}, pool), 5 + kRest);
}

TEST(SyncRule, WhatTheDiskRefusedIsTriedEachSecondAndAtOnceWhereThereMayBeRoom) {
  EXPECT_FALSE(try_again(false, 5, 1'000'000'004));
  EXPECT_TRUE(try_again(false, 5, 1'000'000'005));
  EXPECT_TRUE(try_again(true, 5, 5));
}

}  // namespace
}  // namespace ebb::planner
