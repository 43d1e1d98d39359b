// When tracking stops and when it is tried again.
#include "planner/track_choice.hpp"

#include <gtest/gtest.h>

namespace ebb::planner {
namespace {

constexpr TrackBounds kBounds{.share = 0.3};

TEST(TrackChoice, TracksWhileFewZonesAreWritten) {
  TrackChoice choice(kBounds);
  EXPECT_EQ(choice.at_cut({}), Tracked::everything);
  for (int cut = 0; cut < 100; ++cut) EXPECT_EQ(choice.at_cut(0.3), Tracked::everything);
}

TEST(TrackChoice, OneCutWithMostZonesWrittenChangesNothing) {
  TrackChoice choice(kBounds);
  for (int cut = 0; cut < 100; ++cut) EXPECT_EQ(choice.at_cut(cut % 2 == 0 ? 1.0 : 0.1), Tracked::everything);
}

// A program that writes everything: it stops with the second cut that sees so, and samples one interval in 20.
TEST(TrackChoice, StopsAfterTwoCutsInARowAndSamplesOneIntervalInTwenty) {
  TrackChoice choice(kBounds);
  Tracked tracked = choice.at_cut({});  // all memory was new
  int samples = 0;
  for (int cut = 2; cut <= 400; ++cut) {
    tracked = choice.at_cut(tracked != Tracked::nothing ? std::optional(1.0) : std::nullopt);
    EXPECT_EQ(tracked == Tracked::everything, cut == 2) << "cut " << cut;
    samples += tracked == Tracked::sample;
  }
  EXPECT_GE(samples, 398 / 20 - 1);
  EXPECT_LE(samples, 398 / 20);
}

TEST(TrackChoice, TracksAgainWhenASampleFindsFewZonesWritten) {
  TrackChoice choice(kBounds);
  Tracked tracked = choice.at_cut({});
  for (int cut = 0; cut < 5; ++cut)
    tracked = choice.at_cut(tracked != Tracked::nothing ? std::optional(0.9) : std::nullopt);
  int until = 0;
  while (tracked == Tracked::nothing && until < 100) tracked = choice.at_cut({}), ++until;
  EXPECT_LT(until, 20);
  EXPECT_EQ(tracked, Tracked::sample);
  for (int cut = 0; cut < 50; ++cut) EXPECT_EQ(choice.at_cut(0.05), Tracked::everything);
}

TEST(TrackChoice, SmallZonesAreNotWorthAFaultSoSoon) {
  EXPECT_LT(track_bounds(4 << 10).share, track_bounds(64 << 10).share / 4);
  EXPECT_LT(track_bounds(64 << 10).share, track_bounds(1 << 20).share);
  EXPECT_LT(track_bounds(1 << 30).share, 0.5);
}

}  // namespace
}  // namespace ebb::planner
