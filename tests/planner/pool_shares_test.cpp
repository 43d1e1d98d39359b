// Who uses what of a pool's shares, driven by random processes against a plain model.
#include "planner/pool_shares.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace ebb::planner {
namespace {

constexpr Time kMs = 1'000'000, kSecond = 1000 * kMs;
constexpr Time kBound = kReturnWithin;

// Carries out what the rule says, as an agent does; processes grow, and return what is recalled within the bound.
class Pool {
 public:
  Pool(std::uint32_t slabs, std::size_t count) : sizes_{.slabs = slabs}, shares_(count), processes_(count) {
    for (PoolShare& share : shares_) share.reserve = reserve_of(0, slabs);
  }

  void come(std::size_t p, std::uint32_t largest) {
    shares_[p].owner = static_cast<PartyId>(p + 1);
    shares_[p].reserve = reserve_of(largest, sizes_.slabs);
    processes_[p].largest = std::max(1u, largest);
    want(p, 1);
  }
  void want(std::size_t p, std::uint32_t slabs) {
    PoolShare& share = shares_[p];
    if (slabs > share.used) share.grew_at = now_;
    share.used = std::max(share.used, std::min(slabs, sizes_.slabs));
  }
  void produce(std::size_t p) { processes_[p].produced_at = now_; }
  void borrow(std::size_t p) { processes_[p].wants = true; }
  // All it has on lease returns with it.
  void leave(std::size_t p) {
    for (PoolShare& share : shares_)
      std::erase_if(share.leases, [&](const ShareLease& lease) { return lease.borrower == p + 1; });
    shares_[p].owner = 0;
    shares_[p].used = 0;
    shares_[p].reserve = reserve_of(0, sizes_.slabs);
    shares_[p].grew_at = now_;
    processes_[p] = {};
  }
  void write_in_time(std::uint32_t slabs) { sizes_.in_time = slabs; }

  // Returns the number of commands.
  std::size_t step(Time time, std::mt19937& random) {
    now_ += time;
    for (PoolShare& share : shares_) {
      std::erase_if(share.leases, [&](const ShareLease& lease) {
        const auto due = recalled_.find({&share - shares_.data(), lease.first});
        return lease.state == LeaseState::recalled &&
               (now_ - due->second >= kBound || (now_ > due->second && random() % 8 == 0));
      });
    }
    return plan();
  }

  std::uint32_t has(std::size_t p) const {
    std::uint32_t slabs = 0;
    for (const PoolShare& share : shares_)
      for (const ShareLease& lease : share.leases) slabs += lease.borrower == p + 1 ? lease.slabs : 0;
    return slabs;
  }
  const PoolShare& share(std::size_t p) const { return shares_[p]; }
  std::vector<std::uint32_t> leases_of(std::size_t p) const {
    std::vector<std::uint32_t> slabs;
    for (const PoolShare& share : shares_)
      for (const ShareLease& lease : share.leases)
        if (lease.borrower == p + 1) slabs.push_back(lease.slabs);
    return slabs;
  }
  // The most slabs side by side that nobody has, beyond what owners keep, in shares that one that wants more may have.
  std::uint32_t largest_gap() const {
    std::uint32_t largest = 0;
    for (const PoolShare& share : shares_) {
      const bool others = std::ranges::any_of(processes_, [&](const Process& one) {
        return one.wants && share.owner != static_cast<PartyId>(&one - processes_.data()) + 1;
      });
      std::vector<bool> taken(sizes_.slabs, false);
      for (const ShareLease& lease : share.leases) std::fill_n(taken.begin() + lease.first, lease.slabs, true);
      std::uint32_t run = 0;
      for (std::uint32_t slab = share.kept(); others && slab < sizes_.slabs; ++slab)
        largest = std::max(largest, run = taken[slab] ? 0 : run + 1);
    }
    return largest;
  }
  // Slabs that are of use to all that want more.
  std::uint32_t least() const {
    std::uint32_t slabs = 1;
    for (const Process& one : processes_) slabs = std::max(slabs, one.wants ? one.largest : 1);
    return slabs;
  }
  Time now() const { return now_; }

 private:
  std::size_t plan() {
    std::vector<ShareBorrower> borrowers;
    for (std::size_t p = 0; p < shares_.size(); ++p) {
      const Process& one = processes_[p];
      if (shares_[p].owner != 0) borrowers.push_back({shares_[p].owner, one.wants, one.largest, one.produced_at});
    }
    const auto commands = plan_shares(now_, sizes_, shares_, borrowers);
    for (const ShareCommand& command : commands) {
      PoolShare& share = shares_[command.share];
      const auto found = std::ranges::find(share.leases, command.first, &ShareLease::first);
      if (command.kind == ShareCommand::grant) {
        EXPECT_EQ(found, share.leases.end());
        EXPECT_NE(command.borrower, share.owner) << "it is lent what is its own";
        share.leases.push_back({command.first, command.slabs, LeaseState::lent, command.borrower});
      } else {
        EXPECT_EQ(found->state, LeaseState::lent);
        EXPECT_EQ(found->borrower, command.borrower);
        found->state = LeaseState::recalled;
        recalled_[{command.share, command.first}] = now_;
      }
    }
    check();
    return commands.size();
  }

  void check() const {
    for (std::size_t s = 0; s < shares_.size(); ++s) {
      std::vector<int> users(sizes_.slabs, 0);
      for (const ShareLease& lease : shares_[s].leases) {
        ASSERT_LE(lease.first + lease.slabs, sizes_.slabs) << "more is lent than there is";
        for (std::uint32_t slab = lease.first; slab < lease.first + lease.slabs; ++slab) ++users[slab];
        if (lease.state == LeaseState::lent) {
          EXPECT_GE(lease.first, std::min(shares_[s].kept(), sizes_.slabs)) << "its owner's reserve is lent";
        } else {
          EXPECT_LE(now_ - recalled_.at({static_cast<std::ptrdiff_t>(s), lease.first}), kBound)
              << "its owner waits for longer than the bound";
        }
      }
      EXPECT_TRUE(std::ranges::all_of(users, [](int count) { return count <= 1; })) << "two have the same slab";
    }
  }

  struct Process {
    bool wants = false;
    std::uint32_t largest = 1;
    Time produced_at = 0;
  };
  Time now_ = 0;
  ShareSizes sizes_;
  std::vector<PoolShare> shares_;
  std::vector<Process> processes_;
  std::map<std::pair<std::ptrdiff_t, std::uint32_t>, Time> recalled_;
};

TEST(PoolShares, random_processes_have_their_reserve_back_within_the_bound_and_nothing_is_lent_twice) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const std::uint32_t slabs = 1 + random() % 200;
    const std::size_t count = 1 + random() % 6;
    Pool pool(slabs, count);
    if (random() % 2 == 0) pool.write_in_time(1 + random() % slabs);
    for (int step = 0; step < 300 && !::testing::Test::HasFailure(); ++step) {
      const std::size_t p = random() % count;
      if (pool.share(p).owner == 0) {
        pool.come(p, random() % (slabs / 2 + 1));
      } else if (const auto what = random() % 20; what == 0) {
        pool.leave(p);
      } else if (what < 5) {
        pool.want(p, random() % (slabs + 1));
      } else if (what < 10) {
        pool.borrow(p);
      } else {
        pool.produce(p);
      }
      pool.step(static_cast<Time>(random() % 200) * kMs, random);
    }
    // Once nothing changes, the leases stay where they are, and nothing that another could use is free.
    for (int step = 0; step < 100; ++step) {
      for (std::size_t p = 0; p < count; ++p)
        if (pool.share(p).owner != 0) pool.produce(p);
      const std::size_t commands = pool.step(200 * kMs, random);
      if (step < 80) continue;
      EXPECT_EQ(commands, 0u) << "leases go round";
    }
    EXPECT_LT(pool.largest_gap(), std::max({1u, pool.least(), slabs / 16})) << "what another could use is free";
  }
}

// The processes' checkpoints are of 16 slabs, the shares of 256.
TEST(PoolShares, a_process_that_produces_tenfold_gets_all_but_what_idle_ones_use_and_their_reserves) {
  std::mt19937 random(1);
  Pool pool(256, 4);
  for (std::size_t p = 0; p < 4; ++p) {
    pool.come(p, 16);
    pool.want(p, p == 0 ? 256 : 65);
  }
  pool.borrow(0);
  for (int step = 0; step < 10; ++step) {
    pool.produce(0);
    pool.step(100 * kMs, random);
  }
  EXPECT_EQ(pool.has(0), 3u * (256 - 65 - 32));
  std::uint32_t fit = 0;
  for (const std::uint32_t lease : pool.leases_of(0)) fit += lease / 16;
  EXPECT_GE(fit, 3u * ((256 - 65 - 32) / 16 - 1)) << "its checkpoints are as good as side by side";
  // One of the others goes on: what comes back first is a small part.
  const std::uint32_t before = pool.has(0);
  pool.want(1, 66);
  pool.produce(0);
  pool.step(kMs, random);
  for (int step = 0; step < 11; ++step) {
    pool.produce(0);
    pool.step(100 * kMs, random);
  }
  EXPECT_LE(before - pool.has(0), 4u * 16u);
  EXPECT_LT(pool.has(0), before);
}

TEST(PoolShares, what_one_that_rests_has_on_lease_goes_to_one_that_produces_and_two_that_do_share_alike) {
  std::mt19937 random(1);
  Pool pool(160, 4);
  pool.come(0, 4);
  pool.come(1, 4);
  for (std::size_t p = 0; p < 2; ++p) pool.want(p, 160);
  const auto go_on = [&](Time time, std::initializer_list<std::size_t> producers) {
    for (const Time until = pool.now() + time; pool.now() < until;) {
      for (const std::size_t p : producers) pool.produce(p);
      pool.step(100 * kMs, random);
    }
  };
  pool.borrow(0);
  go_on(2 * kSecond, {0});
  EXPECT_EQ(pool.has(0), 2u * (160 - 40));
  pool.borrow(1);
  go_on(60 * kSecond, {0, 1});
  EXPECT_EQ(pool.has(0) + pool.has(1), 2u * (160 - 40));
  EXPECT_GE(pool.has(1), 80u) << "who comes late has no less";
  go_on(60 * kSecond, {1});
  EXPECT_EQ(pool.has(1), 2u * (160 - 40)) << "the other rests";
  go_on(60 * kSecond, {0, 1});
  EXPECT_GE(pool.has(0), 80u);
}

TEST(PoolShares, a_lease_that_does_not_come_back_holds_up_no_other) {
  constexpr Time kNow = 60 * kSecond;
  constexpr PartyId kStopped = 1, kProduces = 2, kRests = 3;
  const std::vector<PoolShare> shares{
      {.leases = {{0, 50, LeaseState::recalled, kStopped}, {50, 50, LeaseState::lent, kRests}}}};
  const auto plan = [&](bool returns) {
    const std::vector<ShareBorrower> borrowers{{.party = kStopped, .returns = returns},
                                               {.party = kProduces, .wants = true, .produced_at = kNow},
                                               {.party = kRests}};
    return plan_shares(kNow, {.slabs = 100}, shares, borrowers);
  };
  EXPECT_EQ(plan(true), std::vector<ShareCommand>{});
  EXPECT_EQ(plan(false), (std::vector<ShareCommand>{{ShareCommand::recall, 0, 50, 50, kRests}}));
}

TEST(PoolShares, no_lease_is_larger_than_what_is_written_within_the_bound_but_for_one_checkpoint) {
  for (const std::uint32_t largest : {1u, 16u, 40u}) {
    std::mt19937 random(1);
    Pool pool(256, 2);
    pool.write_in_time(20);
    pool.come(0, largest);
    pool.borrow(0);
    for (int step = 0; step < 10; ++step) {
      pool.produce(0);
      pool.step(100 * kMs, random);
    }
    for (const std::uint32_t slabs : pool.leases_of(0)) EXPECT_LE(slabs, std::max(20u, largest));
    EXPECT_GE(pool.has(0), 192u - largest);
  }
}

}  // namespace
}  // namespace ebb::planner
