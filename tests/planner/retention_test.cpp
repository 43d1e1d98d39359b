// Retention against a naive model of what the documentation says.
#include "planner/retention.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace ebb::planner {
namespace {

std::vector<Version> going(const Retention& how, const std::vector<Retained>& newest_first) {
  std::vector<Version> out;
  for (const Dispensable& one : dispensable(how, newest_first)) {
    if (one.goes) out.push_back(newest_first.at(one.place).version);
  }
  return out;
}

using Versions = std::vector<Version>;

TEST(Retention, TheNewestStayAndMultiples) {
  const std::vector<Retained> all{{12, true}, {11, true}, {10, true}, {9, true},
                                  {5, true},  {0, true},  {-5, true}, {-6, true}};
  EXPECT_EQ(going({2, 5}, all), (Versions{9, -6}));
  EXPECT_EQ(going({2, 0}, all), (Versions{10, 9, 5, 0, -5, -6}));
  EXPECT_EQ(going({0, 5}, all), Versions());
  EXPECT_EQ(going({8, 0}, all), Versions());
  EXPECT_EQ(going({~0ull, ~0ull}, all), Versions());
  EXPECT_EQ(dispensable({2, 5}, all).size(), 6u) << "multiples are told of";
}

TEST(Retention, WhatIsNotKnownToBeIntactMakesUpForNothing) {
  EXPECT_EQ(going({1, 0}, {{4, false}, {3, false}, {2, true}, {1, true}}), Versions{1});
  EXPECT_EQ(going({1, 0}, {{4, false}, {3, false}, {2, false}}), Versions());
}

TEST(Retention, WhereAProgramWentBackItsNewestWriteStays) {
  EXPECT_EQ(going({2, 0}, {{12, true}, {11, true}, {5, true, true}}), Versions());
  EXPECT_EQ(going({2, 0}, {{12, true}, {11, true}, {5, true, true}, {4, true}}), Versions{4});
}

TEST(Retention, AsTheModelSays) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Retention how{random() % 5, random() % 4};
    std::set<Version> names;
    for (std::uint64_t i = random() % 12; i > 0; --i) names.insert(static_cast<Version>(random() % 30) - 10);
    std::vector<Retained> newest_first;
    for (auto at = names.rbegin(); at != names.rend(); ++at) {
      newest_first.push_back({*at, random() % 3 != 0, random() % 5 == 0});
    }
    const Versions gone = going(how, newest_first);
    for (const Retained& one : newest_first) {
      const auto newer = std::ranges::count_if(
          newest_first, [&](const Retained& other) { return other.counts && other.version > one.version; });
      const bool multiple = how.keep_every && one.version % static_cast<Version>(how.keep_every) == 0;
      const bool enough = how.keep_last && newer >= static_cast<std::ptrdiff_t>(how.keep_last);
      const bool goes = enough && !one.newest_write && !multiple;
      ASSERT_EQ(std::ranges::count(gone, one.version), goes ? 1 : 0)
          << "round " << round << ", version " << one.version;
    }
  }
}

}  // namespace
}  // namespace ebb::planner
