// Model test: ranges of versions against each version by itself.
#include "planner/version_set.hpp"

#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace ebb::planner {
namespace {

using Version = VersionSet::Version;

std::size_t ranges_of(const std::set<Version>& model) {
  std::size_t ranges = 0;
  for (const Version version : model) ranges += !model.contains(version - 1);
  return ranges;
}

TEST(VersionSet, HoldsWhatASetHoldsInAsManyRangesAsThereAre) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    VersionSet versions;
    std::set<Version> model;
    for (int step = 0; step < 2000; ++step) {
      const Version version = static_cast<Version>(random() % 60) - 20;
      if (random() % 5 < 3) {
        versions.insert(version);
        model.insert(version);
      } else {
        versions.erase(version);
        model.erase(version);
      }
      ASSERT_EQ(versions.ranges(), ranges_of(model)) << "seed " << seed << ", step " << step;
      for (Version v = -22; v < 42; ++v)
        ASSERT_EQ(versions.contains(v), model.contains(v)) << seed << " " << step << " " << v;
    }
    versions.clear();
    EXPECT_EQ(versions.ranges(), 0u);
    EXPECT_FALSE(versions.contains(0));
  }
}

TEST(VersionSet, TakesTheFirstAndTheLastVersionThereAre) {
  VersionSet versions;
  for (const Version version : {INT64_MIN, INT64_MAX, INT64_MIN + 1, INT64_MAX - 1}) versions.insert(version);
  EXPECT_EQ(versions.ranges(), 2u);
  versions.erase(INT64_MAX);
  versions.erase(INT64_MIN);
  EXPECT_TRUE(versions.contains(INT64_MIN + 1) && versions.contains(INT64_MAX - 1));
  EXPECT_FALSE(versions.contains(INT64_MIN) || versions.contains(INT64_MAX));
}

TEST(VersionSet, DoesNotGrowWithWhatFollowsOneAnother) {
  VersionSet versions;
  for (Version v = 0; v < 1'000'000; ++v) versions.insert(v);        // forwards
  for (Version v = 3'000'000; v-- > 2'000'000;) versions.insert(v);  // in reverse
  EXPECT_EQ(versions.ranges(), 2u);
}

TEST(VersionSet, ForgetsTheLowestOfTooManyRanges) {
  VersionSet versions(3);
  for (const Version version : {50, 10, 30, 20, 40}) versions.insert(version);
  EXPECT_EQ(versions.ranges(), 3u);
  for (const Version version : {30, 40, 50}) EXPECT_TRUE(versions.contains(version)) << version;
  for (const Version version : {10, 20}) EXPECT_FALSE(versions.contains(version)) << version;
  for (const Version version : {41, 42}) versions.insert(version);
  versions.erase(41);  // makes two of one
  EXPECT_EQ(versions.ranges(), 3u);
  for (const Version version : {40, 42, 50}) EXPECT_TRUE(versions.contains(version)) << version;
  EXPECT_FALSE(versions.contains(30));
}

}  // namespace
}  // namespace ebb::planner
