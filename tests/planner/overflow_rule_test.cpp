// What goes through the page cache beside a pool: never more than its part of what memory is left.
#include "planner/overflow_rule.hpp"

#include <gtest/gtest.h>
#include <random>

#include "tests/planner/units.hpp"

namespace ebb::planner {
namespace {

TEST(OverflowRule, WhatStandsBesideAPoolIsAPartOfWhatIsLeftAndNothingUnderPressure) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 300; ++run) {
    Beside beside;
    const Bytes share = (1 + random() % 64) * kMiB;
    for (int step = 0; step < 200; ++step) {
      beside.left = random() % (1024 * kMiB);
      beside.stalled = random() % 8 == 0 ? 5 : 0.5;
      if (random() % 3 == 0) beside.bytes -= random() % (beside.bytes + 1);
      const PoolWrite write{random() % (8 * kMiB), random() % (2 * share), share};
      if (!through_page_cache(write, beside)) continue;
      ASSERT_GE(write.bytes, kMiB);
      ASSERT_GT(write.waiting, share / 2) << "a process that has room goes at the disk's pace";
      ASSERT_LE(beside.stalled, kMostStalled);
      beside.bytes += write.bytes;
      ASSERT_LE(beside.bytes, beside.left / 8);
    }
  }
}

TEST(OverflowRule, WhoIsShortOfRoomDoesNotWaitForTheDisk) {
  const Beside beside{.left = 1024 * kMiB};
  EXPECT_FALSE(through_page_cache({kMiB, 4 * kMiB, 8 * kMiB}, beside));
  EXPECT_TRUE(through_page_cache({kMiB, 5 * kMiB, 8 * kMiB}, beside));
  EXPECT_FALSE(through_page_cache({kMiB - 1, 5 * kMiB, 8 * kMiB}, beside));
}

}  // namespace
}  // namespace ebb::planner
