// Lenders who allow a share of their bandwidth: no more than that is given, in any time, and all of it is delivered.
#include <algorithm>
#include <array>
#include <utility>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr TierIndex kPeer = 1;
constexpr double kRate = 1e9;
constexpr Bytes kChunk = kMiB;

Machine with_peers(Bytes device, Bytes host, Bytes local) {
  Machine m;
  m.tiers.push_back({"device", Medium::device, device * kMiB, 4096});
  m.tiers.push_back({"peer", Medium::device, 0, 4096});
  if (host) m.tiers.push_back({"host", Medium::host, host * kMiB, 4096});
  if (local) m.tiers.push_back({"local", Medium::file, local * kMiB, 4096});
  connect(m);
  for (LinkSpec& link : m.links) {
    link.bytes_per_s = kRate;
    link.chunk = kChunk;
  }
  return m;
}

// A machine whose links take no time: what takes any was held up. It notes what is given to and from each of two
// segments of the peer tier.
struct Paced {
  static constexpr Bytes kSegment = 64;  // MiB
  struct Given {
    Time at = 0;
    Bytes bytes = 0;
  };

  explicit Paced(const Machine& machine) : d(machine) {}
  void lend(SegmentId segment, PartyId lender, std::uint32_t share) {
    d.tell(event::Limit{lender, share});
    d.tell(event::Lend{kPeer, segment, kSegment * kMiB, lender});
  }
  // Ends what is under way, at once, or wakes the planner.
  bool step() {
    std::ranges::for_each(d.under_way, [&](const Command& c) { note(c); });
    if (!d.under_way.empty()) {
      const CommandId id = d.under_way.front().id;
      d.under_way.pop_front();
      d.tell(event::Finished{id});
      return true;
    }
    if (d.wakeup == kNever) return false;
    d.now = std::max(d.now, d.wakeup);
    d.send({});
    return true;
  }
  void note(const Command& c) {
    if (c.id <= last) return;
    last = c.id;
    for (const Place& place : {c.from, c.to})
      if (place.at == Endpoint{Endpoint::tier, kPeer})
        given[static_cast<std::size_t>(place.offset / (kSegment * kMiB))].push_back({d.now, c.length});
  }
  void run() {
    for (int i = 0; step(); ++i) ASSERT_LT(i, 100'000) << "it never ends";
  }
  Reason done(RequestId call) {
    while (!d.answered(call) && step()) {
    }
    return d.answered(call) ? d.reason(call) : Reason::cancelled;
  }
  // Of any time: its bytes less than what the rate carries in it and two chunks.
  void check(std::size_t segment, double bytes_per_s) const {
    const auto& all = given[segment];
    for (std::size_t i = 0; i < all.size(); ++i) {
      Bytes sum = 0;
      for (std::size_t j = i; j < all.size(); ++j) {
        sum += all[j].bytes;
        const double time = static_cast<double>(all[j].at - all[i].at) * 1e-9;
        ASSERT_LE(static_cast<double>(sum), bytes_per_s * time + 2.0 * kChunk) << "from " << i << " to " << j;
      }
    }
  }
  Bytes bytes(std::size_t segment) const {
    Bytes sum = 0;
    for (const Given& one : given[segment]) sum += one.bytes;
    return sum;
  }
  Time took(std::size_t segment) const { return given[segment].back().at - given[segment].front().at; }

  Driver d;
  CommandId last = 0;
  std::vector<Given> given[2];
};

struct Pace : ::testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {};

// Six times what the device holds goes to two lenders, and comes back.
TEST_P(Pace, IsKeptForEachLenderAndEverythingIsDelivered) {
  const std::array shares{GetParam().first, GetParam().second};
  Paced p(with_peers(16, 0, 0));
  p.lend(1, 7, shares[0]);
  p.lend(2, 8, shares[1]);
  constexpr Version kVersions = 36;
  for (Version v = 0; v < kVersions; ++v) ASSERT_EQ(p.done(p.d.checkpoint(v, 3, kNever)), Reason::ok) << v;
  for (Version v = kVersions; v-- > 0;) p.d.hint({v});
  for (Version v = kVersions; v-- > 0;) ASSERT_EQ(p.done(p.d.restore(v)), Reason::ok) << v;
  p.run();
  for (const std::size_t segment : {0u, 1u}) {
    ASSERT_GT(p.bytes(segment), 20 * kMiB);
    if (shares[segment] < kWholeLink) p.check(segment, kRate * shares[segment] / kWholeLink);
  }
}
INSTANTIATE_TEST_SUITE_P(Shares, Pace,
                         ::testing::Values(std::pair{250'000u, 250'000u}, std::pair{1'000u, 900'000u},
                                           std::pair{500'000u, kWholeLink}));

// A lender that allows next to nothing holds up no one who has another way.
TEST(SlowLender, IsPassedBy) {
  Machine machine = with_peers(8, 256, 0);
  for (LinkSpec& link : machine.links) link.chunk = 4 * kChunk;  // as large as a checkpoint
  Paced p(machine);
  p.lend(1, 7, 1);
  for (Version v = 0; v < 40; ++v) ASSERT_EQ(p.done(p.d.checkpoint(v, 4, kNever)), Reason::ok) << v;
  EXPECT_LT(p.d.now, 1'000'000'000);
}

struct Recalled : ::testing::Test {  // 48 MiB in a lender's memory, whose share is a tenth
  Recalled() : p(with_peers(4, 4, 0)) {
    p.lend(1, 7, kWholeLink);
    for (Version v = 0; v < 12; ++v) EXPECT_EQ(p.done(p.d.checkpoint(v, 4, kNever)), Reason::ok);
    p.run();
    p.d.tell(event::Limit{7, kWholeLink / 10});
    p.given[0].clear();
  }
  void recall(Time deadline) {
    p.d.tell(event::Lend{2, 1, 64 * kMiB});  // room on the host
    p.d.tell(event::Recall{kPeer, 1, 0, deadline});
    p.run();
    EXPECT_EQ(p.d.returned.size(), 1u);
    EXPECT_GT(p.bytes(0), 10 * kMiB);
  }
  Paced p;
};

TEST_F(Recalled, WhatALenderTakesAtItsLeisureLeavesAtItsPace) {
  recall(kNever);
  p.check(0, kRate / 10);
  EXPECT_LE(static_cast<double>(p.took(0)), static_cast<double>(p.bytes(0)) * 10 / kRate * 1e9) << "and no slower";
}

TEST_F(Recalled, WhatALenderWantsBackAtOnceLeavesAsFastAsItCan) {
  recall(p.d.now + 1'000'000'000);
  EXPECT_EQ(p.took(0), 0);
}

// What of it has been given ends at once here; the rest is never given.
TEST(Pacing, ACallThatWaitsForItIsAnsweredAtOnceWhenItIsGivenUpAndNothingIsLost) {
  Paced p(with_peers(8, 0, 0));
  p.lend(1, 7, kWholeLink);
  Version last = 0;
  for (; last < 4; ++last) ASSERT_EQ(p.done(p.d.checkpoint(last, 3, kNever)), Reason::ok);
  p.run();
  p.d.tell(event::Limit{7, 1});
  const Time begun = p.d.now;
  const auto waits = [&](RequestId call) {
    while (!p.d.under_way.empty()) p.step();
    return !p.d.answered(call);
  };
  const auto give_up = [&](RequestId call) {
    p.d.tell(event::Cancel{call});
    EXPECT_EQ(p.d.reason(call), Reason::cancelled);
    EXPECT_EQ(p.d.now, begun);
  };
  p.given[0].clear();
  const RequestId read = p.d.restore(0);
  ASSERT_TRUE(waits(read));
  EXPECT_EQ(p.bytes(0), 2 * kChunk) << "it had begun";
  give_up(read);
  RequestId write = p.d.checkpoint(last, 3, kNever);
  while (!waits(write)) write = p.d.checkpoint(++last, 3, kNever);
  give_up(write);
  p.d.tell(event::Limit{7, kWholeLink});
  for (Version v = 0; v < last; ++v) EXPECT_EQ(p.done(p.d.restore(v)), Reason::ok) << v;
}

// What is on its way from a file into a lender's memory waits in the staging ring, which others pass as well.
TEST(Pacing, LeavesMostOfTheStagingRingToOthers) {
  Paced p(with_peers(8, 0, 256));
  for (Version v = 0; v < 12; ++v) p.d.adopt(v, 6);
  p.lend(1, 7, 1);  // a quarter of an hour for a chunk
  p.d.hint({0, 1, 2, 3, 4, 5, 6, 7, 8});
  while (p.d.now < 1'000'000'000) ASSERT_TRUE(p.step());
  EXPECT_GT(p.bytes(0), 0u);
  EXPECT_LE(p.d.by_link["local>host"] - p.d.by_link["host>device"] - p.bytes(0), 2 * kChunk);
}

}  // namespace
}  // namespace ebb::planner
