#include "sim/network.hpp"

#include <gtest/gtest.h>
#include <map>

#include "sim/random.hpp"

namespace ebb::sim {
namespace {

constexpr std::uint64_t kGig = 1'000'000'000;  // one byte a nanosecond

// Runs to the end; when each command ended.
std::map<std::uint64_t, Time> ends(Network& network, Time now = 0) {
  std::map<std::uint64_t, Time> out;
  while (network.next() != policy::kNever) {
    now = network.next();
    while (const auto done = network.advance(now)) out[done->id] = now;
  }
  return out;
}

TEST(Network, OneCommandTakesItsLatencyAndItsBytes) {
  Network n;
  const int link = n.add_link(kGig, 100, 2, false, -1);
  n.submit(link, 1, 1000, 5);
  EXPECT_EQ(ends(n)[1], 5 + 100 + 1000);
  EXPECT_EQ(n.use(link).busy, 1100);
  EXPECT_EQ(n.use(link).bytes, 1000u);
}

TEST(Network, LatencyOfACommandHeldRunsBehindTheOneBeforeIt) {
  Network n;
  const int deep = n.add_link(kGig, 100, 2, false, -1), flat = n.add_link(kGig, 100, 1, false, -1);
  for (int i = 0; i < 3; ++i) {
    n.submit(deep, static_cast<std::uint64_t>(i), 1000, 0);
    n.submit(flat, static_cast<std::uint64_t>(10 + i), 1000, 0);
  }
  const auto end = ends(n);
  EXPECT_EQ(end.at(0), 1100);
  EXPECT_EQ(end.at(1), 2100);
  EXPECT_EQ(end.at(2), 3100);
  EXPECT_EQ(end.at(10), 1100);
  EXPECT_EQ(end.at(11), 2200);
  EXPECT_EQ(end.at(12), 3300);
}

TEST(Network, ASharedLinkMovesItsCommandsSideBySide) {
  Network n;
  const int link = n.add_link(kGig, 0, 2, true, -1);
  n.submit(link, 1, 1000, 0);
  n.submit(link, 2, 3000, 0);
  n.submit(link, 3, 1000, 0);  // held once one of the two has ended
  const auto end = ends(n);
  EXPECT_EQ(end.at(1), 2000);
  EXPECT_EQ(end.at(3), 4000);
  EXPECT_EQ(end.at(2), 5000);
}

TEST(Network, AGroupDividesItsRateAndTheSlowLeaveTheirRestToTheFast) {
  Network n;
  const int group = n.add_group(kGig);
  const int slow = n.add_link(kGig / 4, 0, 1, false, group), fast = n.add_link(kGig, 0, 1, false, group);
  n.submit(slow, 1, 1000, 0);  // at a quarter: 4000 ns
  n.submit(fast, 2, 6000, 0);  // at three quarters for 4000 ns, then alone
  const auto end = ends(n);
  EXPECT_EQ(end.at(1), 4000);
  EXPECT_EQ(end.at(2), 7000);
}

TEST(Network, AGroupByTimeHalvesEachOfTwo) {
  Network n;
  const int group = n.add_group(0);
  const int w = n.add_link(kGig, 0, 1, false, group), r = n.add_link(2 * kGig, 0, 1, false, group);
  n.submit(w, 1, 1000, 0);
  n.submit(r, 2, 6000, 0);
  const auto end = ends(n);
  EXPECT_EQ(end.at(1), 2000);
  EXPECT_EQ(end.at(2), 2000 + 2000);
}

TEST(Network, NothingIsMadeFasterThanItsLinkOrItsGroup) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Network n;
    const int group = n.add_group(random.between(1, 20) * 10'000'000);
    std::vector<std::uint64_t> rate;
    for (int l = 0; l < 4; ++l) {
      rate.push_back(random.between(1, 20) * 10'000'000);
      n.add_link(rate.back(), static_cast<Time>(random.below(500)), static_cast<int>(random.between(1, 3)),
                 random.chance(0.5), l < 3 ? group : -1);
    }
    std::vector<double> bytes(4);
    Time now = 0;
    std::size_t done = 0;
    for (std::uint64_t id = 0; id < 50; ++id) {
      const int link = static_cast<int>(random.below(4));
      const Bytes length = random.between(1, 100'000);
      n.submit(link, id, length, now);
      bytes[static_cast<std::size_t>(link)] += static_cast<double>(length);
      const Time until = now + static_cast<Time>(random.below(200'000));
      while (n.next() <= until) {
        now = n.next();
        while (n.advance(now)) ++done;
      }
      now = until;
      while (n.advance(now)) ++done;
    }
    for (const auto& [id, at] : ends(n, now)) {
      ++done;
      now = std::max(now, at);
    }
    EXPECT_EQ(done, 50u);
    for (int l = 0; l < 4; ++l)
      EXPECT_GE(static_cast<double>(n.use(l).busy) + 60,
                bytes[static_cast<std::size_t>(l)] * 1e9 / static_cast<double>(rate[static_cast<std::size_t>(l)]));
  }
}

TEST(Network, TimeNeverGoesBackNorLeaps) {
  Network n;
  const int link = n.add_link(kGig, 0, 1, false, -1);
  n.submit(link, 1, 1000, 10);
  EXPECT_THROW(n.submit(link, 2, 1, 9), std::logic_error);
  EXPECT_THROW(n.advance(2000), std::logic_error);
}

}  // namespace
}  // namespace ebb::sim
