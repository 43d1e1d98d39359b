// Who uses what of a pool's shares, driven by random processes against a plain model.
#include "planner/pool_shares.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace ebb::planner {
namespace {

TEST(PoolShares, what_a_process_uses_and_a_quarter_more_is_never_lent) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    const std::uint32_t share = 1 + random() % 4096;
    const std::uint32_t used = random() % (share + 1);
    const Quarters quarters(share);
    std::uint32_t last = share;
    for (const std::uint32_t start : quarters.starts()) {
      EXPECT_EQ(start + quarters.slabs(), last) << "from the end, side by side";
      last = start;
      if (!quarters.lendable(start, used)) continue;
      EXPECT_GT(quarters.slabs(), 0u);
      EXPECT_LE(used + quarters.slabs(), start);
      EXPECT_TRUE(quarters.lendable(start, used / 2)) << "a process that uses less is not asked for more";
    }
  }
}

constexpr Time kSecond = 1'000'000'000;

// Carries out what the rule says, as an agent does.
std::size_t carry_out(std::vector<PoolShare>& shares, const std::vector<ShareCommand>& commands) {
  for (const ShareCommand& command : commands) {
    LeasedQuarter& quarter = shares[command.share].quarters[command.quarter];
    if (command.kind == ShareCommand::grant) {
      EXPECT_EQ(quarter.state, LeaseState::gone);
      quarter = {LeaseState::lent, command.borrower};
    } else {
      EXPECT_EQ(quarter.state, LeaseState::lent);
      EXPECT_EQ(quarter.borrower, command.borrower);
      quarter.state = LeaseState::recalled;
    }
  }
  return commands.size();
}

TEST(PoolShares, random_processes_get_what_others_do_not_use_and_no_one_waits_for_more_than_its_own) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t slabs = random() % 40, count = 1 + random() % 6;
    const Quarters quarters(slabs);
    std::vector<PoolShare> shares(count);
    Time now = 0;
    for (int step = 0; step < 200; ++step) {
      now += static_cast<Time>(random() % kSecond);
      PoolShare& one = shares[random() % count];
      switch (random() % 3) {
        case 0:  // it grows, or its process comes
          one.owner = static_cast<PartyId>(&one - shares.data()) + 1;
          if (slabs > 0) one.used = std::max(one.used, static_cast<std::uint32_t>(random() % (slabs + 1)));
          one.grew_at = now;
          break;
        case 1:  // its process ends
          one = {.grew_at = now, .quarters = one.quarters};
          for (PoolShare& share : shares)
            for (LeasedQuarter& quarter : share.quarters)
              if (quarter.borrower == static_cast<PartyId>(&one - shares.data()) + 1) quarter = {};
          break;
        default:  // something that was recalled comes back
          for (LeasedQuarter& quarter : one.quarters)
            if (quarter.state == LeaseState::recalled) quarter = {};
      }
      std::vector<PartyId> wanting;
      for (const PoolShare& share : shares)
        if (share.owner != 0 && random() % 2 == 0) wanting.push_back(share.owner);
      carry_out(shares, plan_shares(now, slabs, shares, wanting));
      ASSERT_EQ(carry_out(shares, plan_shares(now, slabs, shares, wanting)), 0u) << "seed " << seed << ": not settled";
      std::map<PartyId, std::uint32_t> has;
      bool free = false;
      for (std::uint32_t s = 0; s < count; ++s) {
        for (std::uint32_t q = 0; q < 3; ++q) {
          const LeasedQuarter& quarter = shares[s].quarters[q];
          const bool lendable = quarters.lendable(quarters.starts()[q], shares[s].used);
          if (quarter.state == LeaseState::lent) {
            EXPECT_TRUE(lendable) << "seed " << seed << ": what its process needs was not recalled";
            EXPECT_NE(quarter.borrower, shares[s].owner);
          }
          if (quarter.state != LeaseState::gone) ++has[quarter.borrower];
          const bool settled = now - shares[s].grew_at >= kSecond / 2;
          const bool others = std::ranges::any_of(wanting, [&](PartyId id) { return id != shares[s].owner; });
          free |= quarter.state == LeaseState::gone && lendable && settled && others;
        }
      }
      EXPECT_FALSE(free) << "seed " << seed << ": a quarter that is not used was lent to none of those that want it";
    }
  }
}

TEST(PoolShares, the_process_with_the_fewest_leases_gets_the_next) {
  std::vector<PoolShare> shares(4);
  shares[0] = {.owner = 1, .used = 16};
  shares[1] = {.owner = 2, .used = 16};
  const std::vector<PartyId> wanting{1, 2};
  carry_out(shares, plan_shares(kSecond, 16, shares, wanting));
  std::multiset<PartyId> borrowers;
  for (const PoolShare& share : shares)
    for (const LeasedQuarter& quarter : share.quarters)
      if (quarter.state == LeaseState::lent) borrowers.insert(quarter.borrower);
  EXPECT_EQ(borrowers, (std::multiset<PartyId>{1, 1, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace ebb::planner
