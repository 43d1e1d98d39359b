#include "planner/growth_model.hpp"

#include <gtest/gtest.h>

namespace ebb::policy {
namespace {

// Measured on one machine: 128 MiB checkpoints, copies at 55 GB/s, four touching threads at 25 GB/s.
GrowthFigures figures(double interval_ms) {
  return {.interval = interval_ms * 1e6,
          .bytes = 128 << 20,
          .copy_alone = 55e9,
          .copy_beside = 30e9,
          .touch_alone = 25e9,
          .touch_beside = 15e9,
          .pin = 50e9,
          .token_wait = 0};
}

TEST(GrowthModel, pauses_when_the_idle_part_of_the_interval_is_enough) {
  // S/F = 2.44 ms, S/T = 5.37 ms: enough with a margin from 2.44 + 1.5 * 5.37 = 10.5 ms on.
  EXPECT_TRUE(prefers_sequential(figures(20), false));
  EXPECT_TRUE(prefers_sequential(figures(10.6), false));
  EXPECT_FALSE(prefers_sequential(figures(10.4), false));
  EXPECT_FALSE(prefers_sequential(figures(5), false));
  // Who pauses already goes on from 2.44 + 1.1 * 5.37 = 8.35 ms on.
  EXPECT_TRUE(prefers_sequential(figures(8.5), true));
  EXPECT_FALSE(prefers_sequential(figures(8.2), true));
}

TEST(GrowthModel, otherwise_takes_the_form_that_is_done_sooner) {
  // Beside each other: 4.47 ms of copying at 30 GB/s, touched meanwhile 67 MB, the other 67 MB at 25 GB/s: 7.16 ms,
  // against 2.44 + 5.37 = 7.81 ms one after the other.
  GrowthFigures f = figures(2);
  EXPECT_NEAR(sequential_time(f), 7.81e6, 0.02e6);
  EXPECT_NEAR(concurrent_time(f), 7.16e6, 0.02e6);
  EXPECT_FALSE(prefers_sequential(f, false));
  EXPECT_FALSE(prefers_sequential(f, true));
  // Where they hinder each other to less than half, one after the other is sooner.
  f.copy_beside = 15e9;
  f.touch_beside = 8e9;
  EXPECT_GT(concurrent_time(f), sequential_time(f) * 1.1);
  EXPECT_TRUE(prefers_sequential(f, false));
  // Touching that ends first leaves the copy alone.
  f.copy_beside = 10e9;
  f.touch_beside = 24e9;
  EXPECT_NEAR(concurrent_time(f), 5.592e6 + 1e9 * (134217728 - 10e9 * 5.592e-3) / 55e9, 0.01e6);
}

TEST(GrowthModel, what_is_as_good_either_way_stays_as_it_is) {
  GrowthFigures f = figures(2);
  f.copy_beside = 20e9;
  f.touch_beside = 25e9 * (1 - 20.0 / 55);
  EXPECT_NEAR(concurrent_time(f), sequential_time(f), 1);
  EXPECT_TRUE(prefers_sequential(f, true));
  EXPECT_FALSE(prefers_sequential(f, false));
}

TEST(GrowthModel, registration_counts_when_it_is_the_slower_part) {
  GrowthFigures f = figures(20);
  f.pin = 10e9;  // 13.4 ms a checkpoint: 2.44 + 1.5 * 13.4 ms are more than the interval
  EXPECT_FALSE(prefers_sequential(f, false));
  f.pin = 0;  // nothing is pinned
  EXPECT_TRUE(prefers_sequential(f, false));
}

TEST(GrowthModel, what_is_only_known_beside_the_other_is_taken_for_no_faster_alone) {
  for (double GrowthFigures::* unknown : {&GrowthFigures::copy_alone, &GrowthFigures::touch_alone}) {
    GrowthFigures f = figures(60);
    f.*unknown = 0;
    EXPECT_TRUE(prefers_sequential(f, false));
    f.interval = 10.6e6;  // enough for what is faster alone
    EXPECT_FALSE(prefers_sequential(f, false));
  }
}

TEST(GrowthModel, what_is_not_known_speaks_for_touching_beside_copies) {
  for (double GrowthFigures::* unknown : {&GrowthFigures::interval, &GrowthFigures::bytes}) {
    GrowthFigures f = figures(60);
    EXPECT_TRUE(prefers_sequential(f, false));
    f.*unknown = 0;
    EXPECT_FALSE(prefers_sequential(f, false));
    EXPECT_FALSE(prefers_sequential(f, true));
  }
  GrowthFigures f = figures(60);
  f.copy_alone = f.copy_beside = 0;
  EXPECT_FALSE(prefers_sequential(f, true));
  f = figures(60);
  f.touch_alone = f.touch_beside = 0;
  EXPECT_FALSE(prefers_sequential(f, true));
  for (double GrowthFigures::* unknown : {&GrowthFigures::copy_alone, &GrowthFigures::copy_beside,
                                          &GrowthFigures::touch_alone, &GrowthFigures::touch_beside}) {
    f = figures(2);
    f.copy_beside = 5e9;
    f.touch_beside = 5e9;
    EXPECT_TRUE(prefers_sequential(f, false));
    f.*unknown = 0;
    EXPECT_FALSE(prefers_sequential(f, false));
  }
}

}  // namespace
}  // namespace ebb::policy
