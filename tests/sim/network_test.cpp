#include "sim/network.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "sim/random.hpp"

namespace ebb::sim {
namespace {

constexpr std::uint64_t kGig = 1'000'000'000;  // one byte a nanosecond

// Runs to the end; when each command ended.
std::map<std::uint64_t, Time> ends(Network& network, Time now = 0) {
  std::map<std::uint64_t, Time> out;
  while (network.next() != planner::kNever) {
    now = network.next();
    while (const auto done = network.advance(now)) out[done->id] = now;
  }
  return out;
}

TEST(Network, OneCommandTakesItsLatencyAndItsBytes) {
  Network n;
  const int link = n.add_link(kGig, 100, 2, false, {});
  n.submit(link, 1, 1000, 5);
  EXPECT_EQ(ends(n)[1], 5 + 100 + 1000);
  EXPECT_EQ(n.use(link).busy, 1100);
  EXPECT_EQ(n.use(link).bytes, 1000u);
}

TEST(Network, LatencyOfACommandHeldRunsBehindTheOneBeforeIt) {
  Network n;
  const int deep = n.add_link(kGig, 100, 2, false, {}), flat = n.add_link(kGig, 100, 1, false, {});
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
  const int link = n.add_link(kGig, 0, 2, true, {});
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
  const int slow = n.add_link(kGig / 4, 0, 1, false, {group}), fast = n.add_link(kGig, 0, 1, false, {group});
  n.submit(slow, 1, 1000, 0);  // at a quarter: 4000 ns
  n.submit(fast, 2, 6000, 0);  // at three quarters for 4000 ns, then alone
  const auto end = ends(n);
  EXPECT_EQ(end.at(1), 4000);
  EXPECT_EQ(end.at(2), 7000);
}

TEST(Network, AGroupByTimeHalvesEachOfTwo) {
  Network n;
  const int group = n.add_group(0);
  const int w = n.add_link(kGig, 0, 1, false, {group}), r = n.add_link(2 * kGig, 0, 1, false, {group});
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
                 random.chance(0.5), l < 3 ? std::vector<int>{group} : std::vector<int>{});
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

TEST(Network, ALinkIsAsSlowAsTheMostCrowdedOfItsGroups) {
  Network n;
  const int first = n.add_group(kGig), second = n.add_group(kGig / 2);
  const int both = n.add_link(kGig, 0, 1, false, {first, second}), one = n.add_link(kGig, 0, 1, false, {first});
  const int other = n.add_link(kGig, 0, 1, false, {second});
  n.submit(both, 1, 1000, 0);   // at a quarter: 4000 ns
  n.submit(other, 2, 2000, 0);  // at a quarter for 4000 ns, then at half
  n.submit(one, 3, 5000, 0);    // at three quarters for 4000 ns, then alone
  const auto end = ends(n);
  EXPECT_EQ(end.at(1), 4000);
  EXPECT_EQ(end.at(2), 4000 + 2000);
  EXPECT_EQ(end.at(3), 4000 + 2000);
}

// Links of several groups, some of which share by time. Rates are whole, so a group of n links may leave n bytes a
// second, and its links may differ by as many.
class Sharing {
 public:
  explicit Sharing(std::uint64_t seed) : random_(seed) {
    for (std::uint64_t g = random_.between(1, 5); g > 0; --g) {
      group_rate_.push_back(random_.chance(0.2) ? 0 : random_.between(1, 40) * 10'000'000);
      n_.add_group(group_rate_.back());
    }
    for (std::uint64_t l = random_.between(1, 8); l > 0; --l) {
      std::vector<int> groups;
      for (int g = 0; g < static_cast<int>(group_rate_.size()); ++g)
        if (random_.chance(0.4)) groups.push_back(g);
      rate_.push_back(random_.between(1, 20) * 10'000'000);
      n_.add_link(rate_.back(), 0, static_cast<int>(random_.between(1, 3)), random_.chance(0.3), groups);
      groups_.push_back(std::move(groups));
    }
    moved_.resize(rate_.size());
    submitted_.resize(rate_.size());
  }

  void run() {
    for (std::uint64_t id = 0; id < 60; ++id) {
      const std::size_t link = random_.below(rate_.size());
      const Bytes bytes = random_.between(1, 100'000);
      n_.submit(static_cast<int>(link), id, bytes, now_);
      submitted_[link] += static_cast<double>(bytes);
      expect_fair();
      move_to(now_ + static_cast<Time>(random_.below(200'000)));
    }
    while (n_.next() != planner::kNever) move_to(n_.next());
    for (std::size_t l = 0; l < rate_.size(); ++l) {
      EXPECT_EQ(n_.queued(static_cast<int>(l)), 0u);
      // Each end is at a whole nanosecond: less than one too late, for as many commands as move at once.
      EXPECT_GE(moved_[l] * (1 + 1e-9), submitted_[l]);
      EXPECT_LE(moved_[l], submitted_[l] + 60 * 3 * static_cast<double>(rate_[l]) * 1e-9);
    }
  }

 private:
  void move_to(Time to) {
    while (true) {
      const Time next = std::min(to, n_.next());
      for (std::size_t l = 0; l < rate_.size(); ++l)
        moved_[l] += static_cast<double>(n_.rate(static_cast<int>(l))) * 1e-9 * static_cast<double>(next - now_);
      now_ = next;
      while (n_.advance(now_)) expect_fair();
      expect_fair();
      if (now_ == to) return;
    }
  }

  double moves(std::size_t link) const { return static_cast<double>(n_.rate(static_cast<int>(link))); }
  // What a link may have alone: its own rate, and its part of that where it shares by time.
  double own(std::size_t link) const {
    double out = static_cast<double>(rate_[link]);
    for (int g : groups_[link]) {
      if (group_rate_[static_cast<std::size_t>(g)] == 0)
        out = std::min(out, static_cast<double>(rate_[link] / members(g).size()));
    }
    return out;
  }
  std::vector<std::size_t> members(int group) const {  // that move now
    std::vector<std::size_t> out;
    for (std::size_t l = 0; l < groups_.size(); ++l)
      if (n_.queued(static_cast<int>(l)) > 0 && std::ranges::find(groups_[l], group) != groups_[l].end())
        out.push_back(l);
    return out;
  }

  void expect_fair() const {
    const double slack = static_cast<double>(rate_.size()) + 2;  // and two that move within one link
    std::vector<bool> full(group_rate_.size());
    std::vector<double> most(group_rate_.size());
    for (std::size_t g = 0; g < group_rate_.size(); ++g) {
      double sum = 0;
      for (std::size_t l : members(static_cast<int>(g))) {
        sum += moves(l);
        most[g] = std::max(most[g], moves(l));
      }
      if (group_rate_[g] == 0) continue;
      EXPECT_LE(sum, static_cast<double>(group_rate_[g]));
      full[g] = sum + slack * slack >= static_cast<double>(group_rate_[g]);
    }
    for (std::size_t l = 0; l < rate_.size(); ++l) {
      if (n_.queued(static_cast<int>(l)) == 0) {
        EXPECT_EQ(moves(l), 0);
        continue;
      }
      bool limited = moves(l) + slack >= own(l);
      EXPECT_LE(moves(l), own(l));
      for (int g : groups_[l]) {
        const auto group = static_cast<std::size_t>(g);
        limited |= full[group] && moves(l) + slack >= most[group];
      }
      EXPECT_TRUE(limited) << "link " << l << " moves " << moves(l) << " of " << own(l) << " bytes/s";
    }
  }

  Random random_;
  Network n_;
  std::vector<std::uint64_t> group_rate_, rate_;
  std::vector<std::vector<int>> groups_;
  std::vector<double> moved_, submitted_;
  Time now_ = 0;
};

TEST(Network, SharesAreMaxMinFairAndMoveEveryByte) {
  for (std::uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sharing(seed).run();
  }
}

TEST(Network, TimeNeverGoesBackNorLeaps) {
  Network n;
  const int link = n.add_link(kGig, 0, 1, false, {});
  n.submit(link, 1, 1000, 10);
  EXPECT_THROW(n.submit(link, 2, 1, 9), std::logic_error);
  EXPECT_THROW(n.advance(2000), std::logic_error);
}

}  // namespace
}  // namespace ebb::sim
