// Several files that keep, one below the other: what goes down to the lower one, what makes room above for it, and what
// a lower file that does not answer holds up.
#include <array>
#include <map>
#include <set>
#include <utility>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr TierIndex kLocal = 1, kShared = 2;  // behind a cache

Machine two_files(Bytes local, Bytes shared, Retention retention = {}, bool device = false) {
  Machine m = device ? machine_of(64, 0, local) : machine_of(0, 64, local);
  m.tiers.push_back({"shared", Medium::file, shared * kMiB, 4096});
  connect(m);
  for (LinkSpec& link : m.links) link.chunk = 4 * kMiB;
  m.ephemeral = false;
  m.retention = retention;
  return m;
}

class Files : public Driver {
 public:
  using Driver::Driver;

  bool on(Version v, TierIndex tier) const {
    const auto found = planner.find(0, v);
    return found && planner.complete_on(*found, tier);
  }
  bool is(const Command& c, TierIndex tier) const {
    return c.to.at == Endpoint{Endpoint::tier, tier} || c.from.at == Endpoint{Endpoint::tier, tier};
  }
  // Ends what is under way; with `hung`, all but copies to or from the shared file.
  void settle(bool hung = false) {
    for (std::size_t i = 0; i < under_way.size();) {
      if (hung && is(under_way[i], kShared)) {
        ++i;
        continue;
      }
      finish(i);
      i = 0;
    }
  }
  void durable(Version v, TierIndex tier) { tell(event::Durable{v, tier}); }
  // Written, and durable on both as far as it goes.
  void keep(Version v, Bytes mib = 4) {
    ASSERT_EQ(write(v, mib), Reason::ok);
    settle();
    durable(v, kLocal);
    settle();
    if (on(v, kShared)) durable(v, kShared);
    settle();
  }
};

TEST(FileTiers, WhatIsCompleteInOneGoesDownToTheNextThroughTheHostsRing) {
  Files d(two_files(64, 256));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.settle();
  EXPECT_TRUE(d.on(1, kLocal) && d.on(1, kShared));
  EXPECT_EQ(d.by_link["local>host"], 8 * kMiB) << "not from the cache, whose room the next writes need";
  EXPECT_EQ(d.by_link["host>shared"], 8 * kMiB);
}

TEST(FileTiers, ThereMayBeMoreThanTwo) {
  constexpr TierIndex kFar = 3;
  Machine m = two_files(16, 64);
  m.tiers[kShared].every = 2;
  m.tiers.push_back({"far", Medium::file, 256 * kMiB, 4096});
  connect(m);
  Files d(m);
  for (Version v = 0; v < 12; ++v) {
    d.keep(v);
    d.durable(v, kFar);
    d.settle();
  }
  for (Version v = 0; v < 12; ++v) {
    EXPECT_EQ(d.on(v, kShared), v % 2 == 0) << v;
    EXPECT_TRUE(d.on(v, kFar)) << v;
  }
  EXPECT_FALSE(d.on(0, kLocal) || d.on(1, kLocal));
  EXPECT_EQ(d.read(1, true), Reason::ok);
}

TEST(FileTiers, EachGetsTheMultiplesThatItsEveryNames) {
  Machine m = two_files(256, 256);
  m.tiers[kShared].every = 3;
  Files d(m);
  for (Version v = 0; v < 7; ++v) d.keep(v);
  for (Version v = 0; v < 7; ++v) {
    EXPECT_TRUE(d.on(v, kLocal)) << v;
    EXPECT_EQ(d.on(v, kShared), v % 3 == 0) << v;
  }
  const RequestId all = d.wait_all(kShared);
  ASSERT_TRUE(d.answered(all)) << "what does not go there is not waited for";
  EXPECT_EQ(d.reason(all), Reason::ok);
  const RequestId one = d.wait(4, kShared);
  EXPECT_FALSE(d.answered(one));
  d.settle();
  ASSERT_TRUE(d.answered(one)) << "a call has asked for it";
  EXPECT_TRUE(d.on(4, kShared));
}

TEST(FileTiers, RetentionIsOfEachTierAndAVersionIsRetiredWhenNoneKeepsIt) {
  Machine m = two_files(256, 256, {.keep_last = 1});
  m.tiers[kShared].retention = Retention{.keep_last = 2, .keep_every = 4};
  Files d(m);
  std::vector<Version> retired;
  for (Version v = 0; v < 6; ++v) {
    ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.settle();
    for (const TierIndex tier : {kLocal, kShared}) {
      d.durable(v, tier);
      for (const Retired& one : d.out.retired) retired.push_back(one.version);
      d.settle();
    }
  }
  EXPECT_EQ(retired, (std::vector<Version>{1, 2, 3}));
  for (Version v = 0; v < 6; ++v) {
    EXPECT_EQ(d.on(v, kLocal), v == 5) << v;
    EXPECT_EQ(d.on(v, kShared), v == 0 || v >= 4) << v;
  }
}

TEST(FileTiers, WhatIsToGoDownStaysUntilItIsDurableThere) {
  Files d(two_files(256, 256, {.keep_last = 1}));
  for (Version v : {1, 2}) {
    ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.settle();
    d.durable(v, kLocal);
  }
  EXPECT_TRUE(d.on(1, kLocal)) << "it is complete below, and may not become durable";
  EXPECT_TRUE(d.on(1, kShared));
  d.durable(1, kShared);
  EXPECT_FALSE(d.on(1, kLocal)) << "version 2 makes up for it here";
  EXPECT_TRUE(d.on(1, kShared));
}

TEST(FileTiers, ACopyThatIsDurableBelowGivesItsRoomBackOldestFirst) {
  Files d(two_files(16, 256));
  for (Version v = 0; v < 4; ++v) d.keep(v);
  d.hint({0});
  d.keep(4);
  d.keep(5);
  EXPECT_TRUE(d.on(0, kLocal)) << "a hint names it";
  EXPECT_FALSE(d.on(1, kLocal) || d.on(2, kLocal));
  for (Version v = 0; v < 6; ++v) EXPECT_TRUE(d.on(v, kShared)) << v;
  EXPECT_EQ(d.read(1, true), Reason::ok) << "from the lower file, or the cache";
}

TEST(FileTiers, NothingLeavesTheUpperFileThatIsNotDurableBelow) {
  Files d(two_files(16, 256));
  for (Version v = 0; v < 4; ++v) {
    ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.settle();
    d.durable(v, kLocal);
  }
  ASSERT_EQ(d.write(9, 4), Reason::ok);
  d.settle();
  EXPECT_FALSE(d.on(9, kLocal));
  for (Version v = 0; v < 4; ++v) EXPECT_TRUE(d.on(v, kLocal) && d.on(v, kShared)) << v;
  EXPECT_TRUE(d.out.commit >> kShared & 1 || d.commits > 0) << "the lower file is asked to make it durable";
  d.durable(2, kShared);
  d.settle();
  EXPECT_FALSE(d.on(2, kLocal));
  EXPECT_TRUE(d.on(9, kLocal));
}

TEST(FileTiers, ADamagedCopyIsMadeUpForByTheOneBelow) {
  Machine m = two_files(64, 256);
  m.max_retries = 0;
  Files d(m);
  d.adopt_on(1, 8, kShared);
  d.adopt_on(1, 8, kLocal);
  const RequestId read = d.restore(1, true);
  ASSERT_TRUE(d.is(d.under_way.at(0), kLocal)) << "the faster one";
  d.finish(0, true, false, true);
  d.settle();
  ASSERT_TRUE(d.answered(read));
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_FALSE(d.on(1, kLocal));
  ASSERT_EQ(d.freed.size(), 1u);
  EXPECT_TRUE(d.freed[0].failed);
  EXPECT_GT(d.by_link["shared>host"], 0u);
}

TEST(FileTiers, WhatOnlyTheLowerFileHasIsRestoredBorrowedAndPrefetched) {
  Files d(two_files(64, 256));
  for (Version v = 0; v < 3; ++v) d.adopt_on(v, 4, kShared);
  EXPECT_EQ(d.read(0, true), Reason::ok);
  const RequestId borrow = d.borrow(1);
  d.settle();
  EXPECT_EQ(d.reason(borrow), Reason::ok);
  d.hint({2});
  d.tell(event::StartPrefetch{});
  d.run();
  EXPECT_TRUE(d.on(2, 0));
  for (Version v = 0; v < 3; ++v) EXPECT_FALSE(d.on(v, kLocal)) << "it does not come back up to the other file";
}

TEST(FileTiers, WhatBothHadFromAnEarlierRunIsNotSentDownAgain) {
  Files d(two_files(64, 256));
  d.adopt_on(1, 4, kShared);
  d.adopt_on(1, 4, kLocal);
  d.adopt_on(2, 4, kLocal);
  d.settle();
  EXPECT_EQ(d.by_link["host>shared"], 4 * kMiB) << "version 2 alone";
  EXPECT_THROW(d.adopt_on(1, 4, kLocal), std::logic_error);
}

TEST(FileTiers, OnRequestIsWhatTheProgramOrAWaitAsksFor) {
  Machine m = two_files(64, 256, {.keep_last = 2});
  m.tiers[kShared].every = kOnRequest;
  Files d(m);
  d.adopt_on(0, 4, kLocal);  // it was not asked for by an earlier process, or did not get there
  const auto write = [&](Version v, bool goes) {
    const RequestId written = d.checkpoint(v, 4);
    if (goes) d.tell(event::Goes{v});
    d.settle();
    ASSERT_EQ(d.reason(written), Reason::ok);
    d.durable(v, kLocal);
    d.settle();
    if (d.on(v, kShared)) d.durable(v, kShared);
  };
  write(1, true);
  for (Version v : {2, 3, 4}) write(v, false);
  EXPECT_TRUE(d.on(1, kShared) && !d.on(1, kLocal)) << "each file counts what it has";
  EXPECT_TRUE(d.on(3, kLocal) && d.on(4, kLocal) && !d.on(2, kLocal));
  for (Version v : {0, 2, 3, 4}) EXPECT_FALSE(d.on(v, kShared)) << v;
  EXPECT_EQ(d.reason(d.wait_all(kShared)), Reason::ok) << "there is nothing to wait for";
  const RequestId one = d.wait(3, kShared);
  d.settle();
  EXPECT_EQ(d.reason(one), Reason::ok);
  EXPECT_TRUE(d.on(3, kShared) && !d.on(4, kShared));
  ASSERT_EQ(d.write(5, 4), Reason::ok);
  const RequestId down = d.wait_all(kShared);
  EXPECT_FALSE(d.answered(down)) << "what does not go there goes down to the file above";
  d.settle();
  EXPECT_EQ(d.reason(down), Reason::ok);
  EXPECT_TRUE(d.on(5, kLocal));
}

// That others wait for all that goes to the lower file asks for none of what does not.
TEST(FileTiers, ACancelledWaitSendsNothingThatDoesNotGo) {
  for (const std::uint64_t every : {std::uint64_t{3}, kOnRequest}) {
    Machine m = two_files(64, 256);
    m.tiers[kShared].every = every;
    Files d(m);
    ASSERT_EQ(d.write(4, 4), Reason::ok);
    const RequestId others = d.wait_all(kShared), mine = d.wait(4, kLocal);
    ASSERT_FALSE(d.answered(mine));
    d.tell(event::Cancel{mine});
    d.settle();
    EXPECT_EQ(d.reason(mine), Reason::cancelled);
    EXPECT_EQ(d.reason(others), Reason::ok);
    EXPECT_TRUE(d.on(4, kLocal));
    EXPECT_FALSE(d.on(4, kShared)) << every;
  }
}

// In the end the lower file has what goes there by itself, and what was asked for, of random programs.
TEST(FileTiers, TheLowerFileGetsWhatGoesThereAndNothingElse) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Machine m = two_files(400, 400);
    const std::uint64_t every = std::array<std::uint64_t, 4>{0, 1, 3, kOnRequest}[random() % 4];
    m.tiers[kShared].every = every;
    Files d(m);
    std::set<Version> written, asked;
    std::set<std::pair<Version, TierIndex>> told;
    std::vector<RequestId> calls, waits;
    const auto tell_durable = [&] {
      for (const Version v : written)
        for (const TierIndex tier : {kLocal, kShared})
          if (d.on(v, tier) && told.emplace(v, tier).second) d.durable(v, tier);
    };
    for (int step = 0; step < 200; ++step) {
      const auto v = static_cast<Version>(random() % 20);
      switch (random() % 12) {
        case 0:
        case 1:
        case 2:
          if (!written.insert(v).second) break;
          calls.push_back(d.checkpoint(v, 1 + random() % 4));
          if (random() % 3 == 0) d.tell(event::Goes{v}), asked.insert(v);
          break;
        case 3:
          d.tell(event::Drop{v});
          written.erase(v), asked.erase(v), told.erase({v, kLocal}), told.erase({v, kShared});
          break;
        case 4: waits.push_back(d.wait_all(random() % 2 ? kShared : kLocal)); break;
        case 5:
          waits.push_back(d.wait(v, kShared));
          if (!d.answered(waits.back()) || d.reason(waits.back()) == Reason::ok) asked.insert(v);
          break;
        case 6: waits.push_back(d.wait(v, kLocal)); break;
        case 7:
          if (!waits.empty()) d.tell(event::Cancel{waits[random() % waits.size()]});
          break;
        case 8: calls.push_back(d.restore(v, true)); break;
        default:
          for (auto n = random() % 6; n-- > 0 && !d.under_way.empty();) d.finish(random() % d.under_way.size());
          tell_durable();
      }
    }
    for (std::size_t before = 0; before != told.size() + 1;) {
      before = told.size() + 1;
      d.settle();
      tell_durable();
      if (!d.under_way.empty()) before = 0;
    }
    for (const auto* each : {&calls, &waits})
      for (const RequestId id : *each) ASSERT_TRUE(d.answered(id)) << id;
    for (const Version v : written) {
      const bool goes = every <= 1 || (every != kOnRequest && v % static_cast<Version>(every) == 0);
      EXPECT_TRUE(d.on(v, kLocal)) << v;
      EXPECT_EQ(d.on(v, kShared), goes || asked.contains(v)) << v;
    }
  }
}

// The lower file hangs with as many copies as it is given, either way, and says so by one report for each version that
// is being written. Without a host cache the other copies pass the host's ring too.
void check_hanging(bool device) {
  Machine m = two_files(128, 256, {.keep_last = 2}, device);
  m.tiers[kShared].retention = Retention{};
  Files d(m);
  for (Version v : {-1, -2}) d.adopt_on(v, 40, kShared);
  const RequestId from_below[] = {d.restore(-1), d.restore(-2)};
  d.checkpoint(0, 40);  // more chunks than the ring has slots
  d.settle(true);
  d.durable(0, kLocal);
  d.tell(event::NotDurable{0, kShared});
  const RequestId below = d.wait(0, kShared);
  for (Version v = 1; v < 60; ++v) {  // four times what the upper file holds
    const RequestId write = d.checkpoint(v, 8);
    d.settle(true);
    std::set<Version> hung;
    for (const Command& c : d.under_way)
      for (Version w = 1; w <= v; ++w)
        if (const auto found = d.planner.find(0, w); found && *found == c.checkpoint) hung.insert(w);
    for (const Version w : hung) d.tell(event::NotDurable{w, kShared});
    d.settle(true);
    ASSERT_TRUE(d.answered(write)) << v;
    ASSERT_EQ(d.reason(write), Reason::ok) << v << d.answers.at(write).detail;
    const RequestId here = d.wait(v, kLocal);
    d.settle(true);
    ASSERT_TRUE(d.answered(here)) << v;
    d.durable(v, kLocal);
    const RequestId read = d.restore(v, true);
    d.settle(true);
    ASSERT_TRUE(d.answered(read)) << v;
  }
  EXPECT_FALSE(d.answered(below) || d.answered(from_below[0]) || d.answered(from_below[1]));
  d.settle();  // it is back
  for (const RequestId call : {below, from_below[0], from_below[1]}) EXPECT_EQ(d.reason(call), Reason::ok);
  EXPECT_TRUE(d.on(59, kShared));
}

TEST(FileTiers, ALowerFileThatHangsHoldsUpOnlyWhoWaitsForIt) { check_hanging(false); }
TEST(FileTiers, ALowerFileThatHangsLeavesTheHostsRingToOthers) { check_hanging(true); }

TEST(FileTiers, WhatDoesNotBecomeDurableBelowIsSentDownAgain) {
  Files d(two_files(64, 256));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  d.settle();
  d.tell(event::NotDurable{1, kShared});
  EXPECT_FALSE(d.on(1, kShared));
  EXPECT_TRUE(d.on(1, kLocal));
  d.run();
  EXPECT_TRUE(d.on(1, kShared));
  EXPECT_EQ(d.by_link["host>shared"], 8 * kMiB);
}

// A failing disk below: calls go on, and each attempt waits for its time.
TEST(FileTiers, FailedCopiesToTheLowerFileAreTriedAgainLater) {
  Machine m = two_files(64, 256);
  m.max_retries = 0;
  Files d(m);
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  while (std::ranges::none_of(d.under_way, [&](const Command& c) { return d.is(c, kShared); })) d.finish();
  d.finish(0, true);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_EQ(d.failures[0].tier, kShared);
  EXPECT_FALSE(d.failures[0].lost);
  EXPECT_EQ(d.read(1, true), Reason::ok);
  d.run();
  EXPECT_TRUE(d.on(1, kShared));
}

TEST(FileTiers, AWaitForTheLowerFileNamesTheFileThatFails) {
  for (const TierIndex failing : {kLocal, kShared}) {
    Machine m = two_files(64, 256);
    m.max_retries = 0;
    Files d(m);
    ASSERT_EQ(d.write(1, 4), Reason::ok);
    const RequestId wait = d.wait(1, kShared);
    while (!d.under_way.empty()) d.finish(0, d.under_way[0].to.at == Endpoint{Endpoint::tier, failing});
    if (d.on(1, kLocal)) d.durable(1, kLocal);
    ASSERT_TRUE(d.answered(wait));
    EXPECT_EQ(d.reason(wait), Reason::lost);
    const std::string detail = d.answers.at(wait).detail;
    EXPECT_NE(detail.find("to " + m.tiers[failing].name + " failed"), std::string::npos) << detail;
  }
}

// A copy that cannot be read for now is not given up for the sake of the one below.
TEST(FileTiers, AVersionIsNotLostByAnAttemptToSendItDown) {
  Machine m = two_files(64, 256);
  m.max_retries = 0;
  Files d(m);
  d.adopt_on(1, 4, kLocal);
  ASSERT_TRUE(d.is(d.under_way.at(0), kLocal));
  d.finish(0, true);
  EXPECT_TRUE(d.on(1, kLocal));
  EXPECT_EQ(d.read(1, true), Reason::ok);
}

TEST(FileTiers, AWaitEndsWhenNewerVersionsMakeUpForWhatItWaitsForBelow) {
  Machine m = two_files(64, 256);
  m.tiers[kShared].retention = Retention{.keep_last = 1};
  m.max_retries = 0;
  Files d(m);
  d.adopt_on(1, 4, kLocal);
  d.finish(0, true);
  d.checkpoint(2, 4);
  const RequestId wait = d.wait(1, kShared);  // it is tried again at once
  const auto again = std::ranges::find_if(d.under_way, [&](const Command& c) { return d.is(c, kLocal); });
  ASSERT_NE(again, d.under_way.end());
  d.finish(static_cast<std::size_t>(again - d.under_way.begin()), true);
  d.settle();
  d.durable(2, kLocal);
  EXPECT_FALSE(d.answered(wait));
  d.durable(2, kShared);
  ASSERT_TRUE(d.answered(wait));
  EXPECT_EQ(d.reason(wait), Reason::ok);
  EXPECT_TRUE(d.on(1, kLocal) && d.on(2, kShared));
  d.run();
  EXPECT_FALSE(d.on(1, kShared));
}

// Its copy below is given up while a command of it is under way.
TEST(FileTiers, AWaitEndsForACopyThatNewerVersionsMakeUpForOnItsWay) {
  Machine m = two_files(64, 256, {.keep_last = 6});
  m.tiers[kShared].retention = Retention{.keep_last = 2};
  for (const bool early : {true, false}) {
    Files d(m);
    for (const Version v : {1, 2, 3}) d.adopt_on(v, 4, kLocal);
    const auto first = d.planner.find(0, 1);
    const auto finish = [&](const auto& which) {
      for (auto at = d.under_way.begin(); (at = std::ranges::find_if(d.under_way, which)) != d.under_way.end();)
        d.finish(static_cast<std::size_t>(at - d.under_way.begin()));
    };
    finish([&](const Command& c) { return d.is(c, kLocal) || c.checkpoint != first; });
    ASSERT_EQ(d.under_way.size(), 1u);
    RequestId wait = early ? d.wait_all(kShared) : 0;
    for (const Version v : {2, 3}) d.durable(v, kShared);
    if (!early) wait = d.wait_all(kShared);
    d.finish();
    ASSERT_TRUE(d.answered(wait));
    EXPECT_EQ(d.reason(wait), Reason::ok) << d.answers.at(wait).detail;
    EXPECT_TRUE(d.on(1, kLocal) && !d.on(1, kShared));
  }
}

// Its last reader still has it, and it is not sent down again.
TEST(FileTiers, AWaitDoesNotWaitForACopyBelowThatCannotBeReadAndIsMadeUpFor) {
  Machine m = two_files(64, 256, {.keep_last = 6});
  m.tiers[kShared].retention = Retention{.keep_last = 1};
  Files d(m);
  d.adopt_on(1, 4, kShared);
  const RequestId one = d.restore(1, true), other = d.restore(1, true);
  ASSERT_EQ(d.under_way.size(), 2u);
  d.adopt_on(1, 4, kLocal);
  d.checkpoint(2, 4);
  const auto newer = d.planner.find(0, 2);
  for (auto at = d.under_way.begin(); at != d.under_way.end();) {
    at = std::ranges::find_if(d.under_way, [&](const Command& c) { return c.checkpoint == newer; });
    if (at != d.under_way.end()) d.finish(static_cast<std::size_t>(at - d.under_way.begin()));
  }
  d.durable(2, kLocal);
  d.durable(2, kShared);
  ASSERT_TRUE(d.on(1, kShared)) << "it is being read";
  d.finish(0, true, false, true);
  const RequestId wait = d.wait_all(kShared);
  EXPECT_TRUE(d.answered(wait));
  EXPECT_FALSE(d.answered(one) || d.answered(other)) << "the test needs readers";
  d.run();
  for (const RequestId call : {one, other, wait}) EXPECT_EQ(d.reason(call), Reason::ok) << d.answers.at(call).detail;
}

// A kill would take it: what is complete in the other file is not durable there yet.
TEST(FileTiers, ACopyBelowStaysUntilAnotherIsDurable) {
  Machine m = two_files(64, 256, {.keep_last = 3});
  m.tiers[kShared].retention = Retention{.keep_last = 1};
  Files d(m);
  for (const Version v : {1, 2}) {
    ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.settle();
  }
  for (const Version v : {1, 2}) d.durable(v, kShared);
  EXPECT_TRUE(d.on(1, kShared));
  d.durable(1, kLocal);
  EXPECT_FALSE(d.on(1, kShared));
  EXPECT_TRUE(d.on(1, kLocal));
}

// A process that was killed may have sent a version down that was not durable above.
TEST(FileTiers, WhatOnlyTheLowerFileHasStaysAsLongAsTheFastestWouldKeepIt) {
  Machine m = two_files(64, 256, {.keep_last = 3});
  m.tiers[kShared].retention = Retention{.keep_last = 1};
  Files d(m);
  d.adopt_on(1, 4, kLocal);
  d.adopt_on(2, 4, kShared);
  for (const Version v : {3, 4}) d.keep(v);
  EXPECT_TRUE(d.on(2, kShared));
  d.keep(5);
  EXPECT_FALSE(d.planner.find(0, 2)) << "three newer ones are durable";
  for (const Version v : {3, 4, 5}) EXPECT_TRUE(d.on(v, kLocal)) << v;
}

// The copy above never became durable, and the durable one below is made up for: neither stays.
TEST(FileTiers, WhatOnlyTheLowerFileHasDurableGoesFromBothOnceItIsMadeUpFor) {
  for (const std::uint64_t keep_last_shared : {1, 2, 4})
    for (const bool fails : {true, false})     // to become durable above, or never does
      for (const bool late : {true, false}) {  // after newer ones were
        Machine m = two_files(20, 256, {.keep_last = 2});
        m.tiers[kShared].retention = Retention{.keep_last = keep_last_shared};
        Files d(m);
        const auto fail = [&] { d.tell(event::NotDurable{3, kLocal}); };
        ASSERT_EQ(d.write(3, 4), Reason::ok);
        d.settle();
        d.durable(3, kShared);
        if (fails && !late) fail();
        const auto newer = static_cast<Version>(std::max<std::uint64_t>(keep_last_shared, 2));
        for (Version v = 4; v < 4 + newer; ++v) {
          EXPECT_TRUE(d.on(3, kShared)) << v;
          d.keep(v);
        }
        if (fails && late) fail();
        EXPECT_FALSE(d.planner.find(0, 3)) << keep_last_shared << fails << late;
        EXPECT_EQ(d.planner.use(kLocal).used, 2 * 4 * kMiB) << "its room has come back";
      }
}

TEST(FileTiers, MultiplesThatStayMakeUpForWhatOnlyTheLowerFileHas) {
  Machine m = two_files(8, 256, {.keep_last = 3, .keep_every = 2});
  m.tiers[kShared].retention = Retention{.keep_last = 1, .keep_every = 2};
  Files d(m);
  d.adopt_on(1, 4, kShared);
  for (const Version v : {2, 4, 6, 8, 10}) {
    d.keep(v);
    EXPECT_EQ(d.on(1, kShared), v < 6) << v << ": three newer ones are durable then";
  }
  for (const Version v : {2, 4, 6, 8, 10}) EXPECT_TRUE(d.on(v, kShared)) << v;
}

TEST(FileTiers, NothingMoreIsSentToALowerFileBeforeItAnswers) {
  Files d(two_files(64, 256));
  d.adopt_on(1, 16, kLocal);
  const auto to_shared = [&] {
    return std::ranges::count_if(d.under_way, [&](const Command& c) { return d.is(c, kShared); });
  };
  while (to_shared() == 0) d.finish();
  d.tell(event::NotDurable{1, kShared});
  d.settle(true);
  EXPECT_EQ(to_shared(), 1);
  d.adopt_on(2, 4, kLocal);
  EXPECT_EQ(d.under_way.size(), 1u);
  d.finish();
  d.settle();
  EXPECT_TRUE(d.on(1, kShared) && d.on(2, kShared));
}

// The lower file has something to end and ends nothing: that is said once, and what needs room goes on without it.
TEST(FileTiers, ASilenceIsSaidOnceAndHoldsUpOnlyWhoWaitsForThatFile) {
  for (const bool in_sync : {false, true}) {  // it hangs in a write, or in what makes that durable
    Files d(two_files(16, 256, {.keep_last = 2}));
    d.checkpoint(0, 4);
    d.settle(!in_sync);
    d.durable(0, kLocal);
    d.settle(!in_sync);
    ASSERT_EQ(d.on(0, kShared), in_sync);
    const RequestId below = d.wait(0, kShared);
    ASSERT_NE(d.wakeup, kNever);
    EXPECT_EQ(d.out.silent, 0u);
    d.now = d.wakeup - 1;
    d.send({});
    EXPECT_EQ(d.out.silent, 0u) << "its time has not passed";
    d.now += 1;
    d.send({});
    EXPECT_EQ(d.out.silent, 1u << kShared);
    for (Version v = 1; v < 20; ++v) {
      const RequestId write = d.checkpoint(v, 4);
      d.settle(true);
      d.durable(v, kLocal);
      EXPECT_EQ(d.out.silent, 0u) << "it was said";
      ASSERT_TRUE(d.answered(write)) << v;
      EXPECT_EQ(d.reason(write), Reason::ok) << v;
    }
    EXPECT_EQ(d.answered(below), in_sync) << "it is there, though not durable";
    if (in_sync)
      d.durable(0, kShared);
    else
      d.finish();
    EXPECT_EQ(d.out.heard, 1u << kShared);
    d.run();
    EXPECT_TRUE(d.on(19, kShared)) << "it goes on";
    EXPECT_TRUE(d.answered(below));
  }
}

TEST(FileTiers, AFileThatEndsOneThingAfterTheOtherIsNotSilent) {
  Files d(two_files(256, 1024));
  for (Version v = 0; v < 8; ++v) d.adopt_on(v, 16, kLocal);
  while (!d.under_way.empty()) {
    d.now += kSilentAfter / 8;
    d.finish();
    EXPECT_EQ(d.out.silent, 0u);
  }
  EXPECT_TRUE(d.on(7, kShared));
}

// Reads for the lower file share the upper one's disk with the writes of a program, which go first.
TEST(FileTiers, OneChunkAtATimeGoesDownWhileAProgramWritesWithoutAPause) {
  Files d(two_files(256, 1024));
  std::size_t most = 0, seen = 0;
  for (Version v = 0; v < 8; ++v) {
    d.checkpoint(v, 16);
    for (int ends = 0; ends < 3 && !d.under_way.empty(); ++ends) {
      const auto is_write = [&](const Command& c) { return c.to.at == Endpoint{Endpoint::tier, kLocal}; };
      const auto is_read = [&](const Command& c) { return c.from.at == Endpoint{Endpoint::tier, kLocal}; };
      if (std::ranges::any_of(d.under_way, is_write)) {
        const auto reads = static_cast<std::size_t>(std::ranges::count_if(d.under_way, is_read));
        most = std::max(most, reads), seen += reads;
      }
      d.finish();
    }
  }
  EXPECT_EQ(most, 1u);
  EXPECT_GT(seen, 0u);
}

TEST(FileTiers, NoCallWritesToTheLowerFile) {
  Files d(two_files(16, 1024));
  const RequestId large = d.checkpoint(100, 128);
  ASSERT_TRUE(d.answered(large)) << "it fits the lower file alone";
  EXPECT_EQ(d.reason(large), Reason::too_large);
  for (Version v = 0; v < 20; ++v) {  // as much as the cache and the upper file hold
    d.checkpoint(v, 4);
    d.settle();
  }
  d.checkpoint(20, 4);
  d.settle();
  EXPECT_EQ(d.by_link["host>shared"], 16 * kMiB) << "copies of what is in the upper file";
  EXPECT_FALSE(d.planner.find(0, 20) && d.planner.complete_on(*d.planner.find(0, 20), kShared));
}

// The lower file has no room before it gives some back to the disk, and may never.
TEST(FileTiers, ACallIsRefusedAtItsTimeLimitThoughTheLowerFileMayGiveRoomBack) {
  Machine m = two_files(16, 4);
  m.releases_later = true;
  Files d(m);
  d.keep(0);
  d.tell(event::Drop{0});
  d.tell(event::Unreleased{0, kLocal});
  for (Version v = 1; v <= 20; ++v) {  // the upper file and the cache are full then
    ASSERT_EQ(d.write(v, 4), Reason::ok) << v;
    d.settle();
    if (d.on(v, kLocal)) d.durable(v, kLocal);
  }
  const RequestId one_more = d.checkpoint(21, 4);
  ASSERT_TRUE(d.answered(one_more));
  EXPECT_EQ(d.reason(one_more), Reason::no_space);
  d.tell(event::Unreleased{0, kShared});
  d.settle();
  EXPECT_TRUE(d.on(1, kShared));
}

// In any second, no more than the limit and two copies.
TEST(FileTiers, ALinksLimitHoldsForAnySecond) {
  constexpr Bytes kLimit = 100 * kMiB;
  Machine m = two_files(1024, 1024);
  for (LinkSpec& link : m.links)
    if (link.to == m.tiers[kShared].node) link.most_bytes_per_s = kLimit;
  Files d(m);
  std::map<CommandId, Time> given;
  std::vector<std::pair<Time, Bytes>> sent;
  for (Version v = 0; v < 100; ++v) d.checkpoint(v, 8, kNever);
  for (int i = 0; i < 100000 && (!d.under_way.empty() || d.wakeup != kNever); ++i) {
    for (const Command& c : d.under_way)
      if (c.to.at == Endpoint{Endpoint::tier, kShared} && given.emplace(c.id, d.now).second)
        sent.emplace_back(d.now, c.length);
    d.step();
  }
  for (Version v = 0; v < 100; ++v) ASSERT_TRUE(d.on(v, kShared)) << v;
  for (auto first = sent.begin(); first != sent.end(); ++first) {
    Bytes within = 0;
    for (auto one = first; one != sent.end() && one->first < first->first + 1'000'000'000; ++one) within += one->second;
    ASSERT_LE(within, kLimit + 8 * kMiB) << "in the second from " << first->first;
  }
}

}  // namespace
}  // namespace ebb::planner
