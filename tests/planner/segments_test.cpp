// Memory of a tier that is lent, recalled and lost, segment by segment.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr TierIndex kDevice = 0, kHostTier = 1, kLocal = 2;

void lend(Driver& d, TierIndex tier, SegmentId segment, Bytes mib) { d.tell(event::Lend{tier, segment, mib * kMiB}); }
void recall(Driver& d, TierIndex tier, SegmentId segment, Bytes mib, Time deadline = kNever) {
  d.tell(event::Recall{tier, segment, mib * kMiB, deadline});
}
void lose(Driver& d, TierIndex tier, SegmentId segment) { d.tell(event::Lost{tier, segment}); }

bool returned(const Driver& d, TierIndex tier, SegmentId segment) {
  return std::ranges::any_of(d.returned, [&](const Returned& r) { return r.tier == tier && r.segment == segment; });
}

TEST(Segments, ACheckpointGoesWhereASegmentHasRoomForAllOfIt) {
  Driver d(machine_of(4, 0, 0));
  EXPECT_EQ(d.reason(d.checkpoint(1, 6)), Reason::too_large);
  lend(d, kDevice, 1, 4);
  EXPECT_EQ(d.planner.use(kDevice).capacity, 8 * kMiB);
  EXPECT_EQ(d.reason(d.checkpoint(1, 6)), Reason::too_large) << "no replica spans two segments";
  lend(d, kDevice, 2, 8);
  EXPECT_EQ(d.write(1, 6), Reason::ok);
  EXPECT_EQ(d.write(2, 4), Reason::ok);
  EXPECT_EQ(d.write(3, 4), Reason::ok);
  for (Version v : {1, 2, 3}) EXPECT_EQ(d.read(v), Reason::ok);
}

TEST(Segments, WhatIsRecalledWithADeadlineMovesAheadOfEverythingElseAndIsThenReturned) {
  Driver d(machine_of(0, 16, 64));
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.tell(event::StartPrefetch{});  // no flush ahead of need from here on
  lend(d, 0, 1, 16);
  recall(d, 0, 0, 0, d.now + 1'000'000'000);
  EXPECT_FALSE(returned(d, 0, 0)) << "it holds the only copies";
  ASSERT_FALSE(d.under_way.empty());
  for (const Command& c : d.under_way)
    EXPECT_EQ(d.planner.machine().links[static_cast<std::size_t>(c.link)].name, "host>local");
  d.run();
  EXPECT_TRUE(returned(d, 0, 0));
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
  for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.read(v), Reason::ok) << v;
}

TEST(Segments, ALaterRecallWithoutADeadlineDoesNotTakeAnEarlierOneBack) {
  Driver d(machine_of(0, 16, 64));
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.tell(event::StartPrefetch{});  // no flush ahead of need from here on
  lend(d, 0, 1, 16);
  recall(d, 0, 0, 12, d.now + 1'000'000'000);
  recall(d, 0, 0, 0);
  d.run();
  EXPECT_TRUE(returned(d, 0, 0));
}

TEST(Segments, ARecallThatIsUndoneMovesNothingMore) {
  Driver d(machine_of(0, 16, 64));
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.tell(event::StartPrefetch{});
  const Bytes before = d.by_link["host>local"];
  recall(d, 0, 0, 8);
  EXPECT_FALSE(returned(d, 0, 0));
  lend(d, 0, 0, 16);
  EXPECT_TRUE(returned(d, 0, 0)) << "nothing is beyond its end";
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).capacity, 16 * kMiB);
  EXPECT_LE(d.by_link["host>local"], before + 8 * kMiB) << "what had begun ends";
  for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.read(v), Reason::ok) << v;
}

TEST(Segments, WhatIsLentAgainInPartIsReturnedOnceTheRestIsEmpty) {
  Driver d(machine_of(0, 16, 64));
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.tell(event::StartPrefetch{});
  recall(d, 0, 0, 0);
  lend(d, 0, 0, 8);
  EXPECT_FALSE(returned(d, 0, 0)) << "the only copies of two versions are in the rest";
  d.run();
  EXPECT_TRUE(returned(d, 0, 0));
  for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.read(v), Reason::ok) << v;
}

TEST(Segments, WithoutATierBelowItGoesUp) {
  Driver d(machine_of(16, 16, 0));
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.run();
  ASSERT_EQ(d.write(4, 4), Reason::ok);
  d.run();
  ASSERT_GT(d.planner.use(kHostTier).used, 0u);
  for (Version v : {1, 2, 3, 4}) ASSERT_EQ(d.read(v), Reason::ok);
  recall(d, kHostTier, 0, 0, d.now + 1'000'000'000);
  d.run();
  EXPECT_TRUE(returned(d, kHostTier, 0));
  EXPECT_EQ(d.read(0), Reason::ok);
}

// Two checkpoints on the device, sixteen on the host, and the rest, of those that fill both, in memory that others
// lend.
TEST(Segments, WhatNoTierBelowHasRoomForGoesByTheDeviceToWhatIsStillLent) {
  Machine m;
  m.tiers = {{"device", Medium::device, 8 * kMiB, 4096},
             {"peer", Medium::device, 0, 4096},
             {"host", Medium::host, 64 * kMiB, 4096}};
  connect(m);
  for (const bool reading : {false, true}) {
    Driver d(m);
    for (SegmentId segment = 1; segment <= 4; ++segment) lend(d, 1, segment, 64);
    for (Version v = 0; v < 44; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.run();
    if (reading) d.tell(event::StartPrefetch{});  // nothing is flushed ahead of need
    for (const SegmentId segment : {1u, 2u}) recall(d, 1, segment, 0, d.now + 10'000'000'000);
    d.run();
    for (const SegmentId segment : {1u, 2u}) EXPECT_TRUE(returned(d, 1, segment)) << segment;
    for (Version v = 0; v < 44; ++v) EXPECT_EQ(d.read(v), Reason::ok) << v;
  }
}

struct Spread : ::testing::Test {  // versions 0 to 3 on the device and in the file, 4 and 5 on the device alone
  Spread() : d(machine_of(32, 0, 64)) {
    for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.write(v, 4), Reason::ok);
    d.wait_all(1);
    d.run();
    d.tell(event::StartPrefetch{});
    for (Version v = 4; v < 6; ++v) EXPECT_EQ(d.write(v, 4), Reason::ok);
    d.tell(event::StartPrefetch{});
  }
  Driver d;
};

TEST(Segments, WhatWasLostWithTheOnlyCopyIsSaidByNameUntilItIsWrittenOrDropped) {
  Driver e(machine_of(8, 0, 64));
  ASSERT_EQ(e.write(1, 4), Reason::ok);
  e.tell(event::StartPrefetch{});
  const RequestId pending = e.wait(1, 1);
  ASSERT_FALSE(e.answered(pending));
  lose(e, kDevice, 0);
  while (!e.under_way.empty()) e.finish(0, true);
  ASSERT_TRUE(e.answered(pending));
  EXPECT_EQ(e.reason(pending), Reason::lost);
  ASSERT_EQ(e.failures.size(), 1u);
  EXPECT_TRUE(e.failures[0].lost);
  for (const RequestId call : {e.restore(1), e.borrow(1), e.wait(1, 1)}) {
    ASSERT_EQ(e.reason(call), Reason::lost);
    EXPECT_EQ(e.answers[call].detail, "version 1 is lost: it was in segment 0 of tier device, whose memory was lost");
  }
  EXPECT_FALSE(e.planner.idle(0));
  e.tell(event::Drop{1});
  EXPECT_EQ(e.read(1), Reason::unknown_version);
  EXPECT_TRUE(e.planner.idle(0));
}

TEST_F(Spread, WhatIsCompleteElsewhereIsNotLost) {
  d.run();
  lend(d, kDevice, 1, 32);
  lose(d, kDevice, 0);
  d.run();
  for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.read(v), Reason::ok) << v;
  EXPECT_EQ(d.write(9, 4), Reason::ok) << "other segments go on";
  EXPECT_EQ(d.read(9), Reason::ok);
  EXPECT_THROW(lend(d, kDevice, 0, 32), std::logic_error) << "it is never lent again";
  EXPECT_THROW(recall(d, kDevice, 0, 0), std::logic_error);
}

TEST(Segments, AReservationWhoseMemoryIsLostIsLostWithItsCommit) {
  Driver d(machine_of(8, 0, 64));
  const RequestId held = d.reserve(1, 4);
  ASSERT_EQ(d.reason(held), Reason::ok);
  lose(d, kDevice, 0);
  const RequestId read = d.restore(1);
  EXPECT_EQ(d.reason(read), Reason::unknown_version) << "it is not committed yet";
  d.tell(event::Commit{held});
  EXPECT_EQ(d.reason(d.restore(1)), Reason::lost);
}

TEST(Segments, ABorrowedCopyInLostMemoryLeavesWithItsRelease) {
  Driver d(machine_of(8, 0, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  const RequestId loan = d.borrow(1);
  ASSERT_EQ(d.reason(loan), Reason::ok);
  lose(d, kDevice, 0);
  EXPECT_EQ(d.planner.use(kDevice).used, 4 * kMiB);
  while (!d.under_way.empty()) d.finish(0, true);
  d.tell(event::Release{loan});
  EXPECT_EQ(d.planner.use(kDevice).used, 0u);
  EXPECT_EQ(d.reason(d.restore(1)), Reason::lost);
}

TEST(Segments, ABlockedWriteWhoseMemoryIsLostTakesOther) {
  Driver d(machine_of(8, 8, 0));
  const RequestId write = d.checkpoint(1, 4);
  ASSERT_FALSE(d.under_way.empty());
  lose(d, kDevice, 0);
  d.finish(0, true);
  d.run();
  EXPECT_EQ(d.reason(write), Reason::ok);
  EXPECT_GT(d.planner.use(kHostTier).used, 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

// --- a staging ring in lent memory ----------------------------------------------------------------------------------

// Device, peer and host, with a ring of two slots each way in a segment that has no room beside it. A chunk is one MiB.
struct Relayed : ::testing::Test {
  static constexpr TierIndex kPeer = 1;
  static constexpr Bytes kSegment = 4;  // MiB
  static Machine machine() {
    Machine m;
    m.tiers = {{.name = "device", .medium = Medium::device, .capacity = 64 * kMiB},
               {.name = "peer", .medium = Medium::device},
               {.name = "host", .medium = Medium::host, .capacity = 128 * kMiB}};
    connect(m);
    m.nodes[static_cast<std::size_t>(m.tiers[kPeer].node)].staging = 2;
    for (LinkSpec& link : m.links) link.chunk = kMiB;
    return m;
  }
  Driver d{machine()};
  void lend_peer(SegmentId segment, bool relays) { d.tell(event::Lend{kPeer, segment, kSegment * kMiB, 7, relays}); }
  bool in_ring(const Place& place) const {
    return place.at == Endpoint{Endpoint::tier, kPeer} && place.offset >= (kSegment - 4) * kMiB;
  }
  // The index of a command under way into the ring, or out of it; -1: there is none.
  int under_way(bool into) const {
    for (std::size_t i = 0; i < d.under_way.size(); ++i)
      if (in_ring(into ? d.under_way[i].to : d.under_way[i].from)) return static_cast<int>(i);
    return -1;
  }
  // A checkpoint is in the device's cache and asked for on the host, and one of its chunks is in the ring.
  RequestId begin() {
    lend_peer(1, true);
    EXPECT_EQ(d.planner.use(kPeer).capacity, (kSegment - 4) * kMiB);
    const RequestId written = d.checkpoint(1, 62);
    while (!d.answered(written)) d.finish();
    const RequestId waits = d.wait(1, 2);
    EXPECT_GE(under_way(true), 0);
    d.finish(static_cast<std::size_t>(under_way(true)));
    EXPECT_GE(under_way(false), 0);
    return waits;
  }
};

TEST_F(Relayed, WhatIsInTheRingPassesOnAndThenItsSegmentIsReturned) {
  const RequestId waits = begin();
  recall(d, kPeer, 1, 0);
  EXPECT_TRUE(d.returned.empty()) << "chunks are in the ring";
  while (under_way(true) >= 0) d.finish(static_cast<std::size_t>(under_way(true)));
  while (under_way(false) >= 0) d.finish(static_cast<std::size_t>(under_way(false)));
  EXPECT_EQ(d.returned.size(), 1u);
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
  lend_peer(1, true);
  EXPECT_EQ(d.planner.use(kPeer).capacity, (kSegment - 4) * kMiB) << "and a new ring is in it";
}

TEST_F(Relayed, ALostRingLosesNothing) {
  const RequestId waits = begin();
  lose(d, kPeer, 1);
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
  EXPECT_TRUE(d.failures.empty());
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(Relayed, WhereTheRelayFailsTheDirectRouteCarriesIt) {
  const RequestId waits = begin();
  d.finish(static_cast<std::size_t>(under_way(false)), true);
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(Relayed, WhatFailsBecauseItsMemoryHasEndedIsNotSentThereAgain) {
  begin();
  for (std::size_t i = 0; i < d.under_way.size();)  // all but what is on its way out of the ring
    in_ring(d.under_way[i].from) ? ++i : (d.finish(i), i = 0);
  ASSERT_GE(under_way(false), 0);
  recall(d, 2, 0, 0);
  d.finish(static_cast<std::size_t>(under_way(false)), true);
  EXPECT_EQ(d.planner.counters().retries, 0u);
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{2}).used, 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(Relayed, WhatWasLostInTheRingIsNotSentToMemoryThatHasEnded) {
  begin();
  for (std::size_t i = 0; i < d.under_way.size();)  // all but what is on its way out of the ring
    in_ring(d.under_way[i].from) ? ++i : (d.finish(i), i = 0);
  ASSERT_GE(under_way(false), 0);
  recall(d, 2, 0, 0);
  lose(d, kPeer, 1);
  const Bytes straight = d.by_link["device>host"];
  d.run();
  EXPECT_EQ(d.by_link["device>host"], straight);
  EXPECT_EQ(d.planner.use(TierIndex{2}).used, 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(Relayed, NoRingIsMadeInMemoryThatHasNoLinkOfItsOwn) {
  lend_peer(1, false);
  EXPECT_EQ(d.planner.use(kPeer).capacity, kSegment * kMiB);
  EXPECT_EQ(d.write(1, 62), Reason::ok);
  d.wait(1, 2);
  d.run();
  EXPECT_EQ(d.planner.counters().relayed, 0u);
}

TEST_F(Relayed, WhatIsLentAgainWhileItsRingIsInUseCanBeRecalledInPart) {
  const RequestId waits = begin();
  recall(d, kPeer, 1, 0);
  lend_peer(1, true);
  EXPECT_EQ(d.planner.use(kPeer).capacity, (kSegment - 4) * kMiB);
  recall(d, kPeer, 1, kSegment - 2);
  EXPECT_EQ(d.planner.use(kPeer).capacity, (kSegment - 4) * kMiB) << "no more than before";
  d.run();
  EXPECT_TRUE(returned(d, kPeer, 1));
  EXPECT_EQ(d.reason(waits), Reason::ok);
}

TEST_F(Relayed, NoChunkTakesTheRingOfALenderWhosePaceIsSlowerThanTheDirectRoute) {
  for (const std::uint32_t share : {1u, kWholeLink / 2}) {
    Driver d(machine());
    d.tell(event::Lend{kPeer, 1, kSegment * kMiB, 7, true});
    d.tell(event::Limit{7, share});
    ASSERT_EQ(d.write(1, 62), Reason::ok);
    const RequestId waits = d.wait(1, 2);
    d.run();
    EXPECT_EQ(d.reason(waits), Reason::ok);
    EXPECT_LT(d.now, 1'000'000'000) << share;
    EXPECT_EQ(d.planner.counters().relayed > 0, share > 1);
  }
}

// Lenders whose memory has room for a ring and no more, each with a device of its own.
struct ManyRelays : Relayed {
  static constexpr Bytes kRing = 4;  // MiB, as the segment
  static constexpr PartyId kLenders = 3;
  void lend_rings(Driver& driver) {
    for (PartyId lender = 1; lender <= kLenders; ++lender)
      driver.tell(event::Lend{kPeer, static_cast<SegmentId>(lender), kRing * kMiB, lender, true});
    EXPECT_EQ(driver.planner.use(kPeer).capacity, 0u);
  }
  static PartyId lender_of(const Place& place) {
    if (place.at != Endpoint{Endpoint::tier, kPeer}) return 0;
    return static_cast<PartyId>(place.offset / (kRing * kMiB)) + 1;
  }
  // Commands out of the ring of each lender, and into it.
  std::map<PartyId, int> out_of_rings() const {
    std::map<PartyId, int> count;
    for (const Command& c : d.under_way)
      if (const PartyId lender = lender_of(c.from)) ++count[lender];
    return count;
  }
  // Ends what goes into the rings, and nothing else.
  void fill_rings() {
    for (std::size_t i = 0; i < d.under_way.size();)
      if (lender_of(d.under_way[i].to) != 0)
        d.finish(i), i = 0;
      else
        ++i;
  }
  RequestId begin_many() {
    lend_rings(d);
    EXPECT_EQ(d.write(1, 62), Reason::ok);
    const RequestId waits = d.wait(1, 2);
    fill_rings();
    return waits;
  }
};

TEST_F(ManyRelays, AllCopyToTheHostAtOnceEachAsMuchAsALinkTakes) {
  const RequestId waits = begin_many();
  EXPECT_EQ(out_of_rings(), (std::map<PartyId, int>{{1, 2}, {2, 2}, {3, 1}}))
      << "the last slot is for calls that block";
  d.planner.check();
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(ManyRelays, OneThatIsLostTakesNothingWithIt) {
  const RequestId waits = begin_many();
  lose(d, kPeer, 2);
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
  EXPECT_TRUE(d.failures.empty());
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(ManyRelays, OneThatIsRecalledIsReturnedWhileTheOthersGoOn) {
  const RequestId waits = begin_many();
  recall(d, kPeer, 2, 0);
  for (std::size_t i = 0; i < d.under_way.size();)
    if (lender_of(d.under_way[i].from) == 2)
      d.finish(i), i = 0;
    else
      ++i;
  EXPECT_TRUE(returned(d, kPeer, 2));
  EXPECT_FALSE(d.answered(waits));
  fill_rings();
  EXPECT_EQ(out_of_rings(), (std::map<PartyId, int>{{1, 2}, {3, 1}}));
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
}

TEST_F(ManyRelays, ASlowLenderHoldsUpNoOther) {
  lend_rings(d);
  d.tell(event::Limit{2, 1});
  ASSERT_EQ(d.write(1, 62), Reason::ok);
  const RequestId waits = d.wait(1, 2);
  fill_rings();
  EXPECT_EQ(out_of_rings(), (std::map<PartyId, int>{{1, 2}, {3, 2}}));
  d.run();
  EXPECT_EQ(d.reason(waits), Reason::ok);
}

TEST_F(ManyRelays, ALenderHasOneRingAndTheRestIsForCheckpoints) {
  lend_rings(d);
  d.tell(event::Lend{kPeer, kLenders + 1, 8 * kMiB, 1, true});
  EXPECT_EQ(d.planner.use(kPeer).capacity, 8 * kMiB) << "it has one already";
  d.tell(event::Lend{kPeer, kLenders + 2, 8 * kMiB, kLenders + 1, true});
  EXPECT_EQ(d.planner.use(kPeer).capacity, 12 * kMiB) << "another lender";
}

// A checkpoint comes from the host to lent memory while a stream restores it: whether the stream can wait for those
// copies depends on whose they are.
TEST_F(Relayed, AStreamIsOrderedBehindNoCopyOverALendersLink) {
  for (const bool relays : {false, true}) {
    Driver d(machine());
    for (Version v = 1; v <= 2; ++v) {
      ASSERT_EQ(d.write(v, 40), Reason::ok);
      d.wait(v, 2);
      d.run();
    }
    d.tell(event::Lend{kPeer, 1, 64 * kMiB, 7, relays});
    d.hint({2, 1});
    d.tell(event::StartPrefetch{});
    const auto comes = [&](const Command& c) { return c.to.at == Endpoint{Endpoint::tier, kPeer}; };
    for (int i = 0; i < 100 && std::ranges::none_of(d.under_way, comes); ++i) d.step();
    ASSERT_TRUE(std::ranges::any_of(d.under_way, comes));
    const RequestId restored = d.restore(1, false, true);
    std::size_t behind = 0;
    while (!d.under_way.empty()) {
      behind += static_cast<std::size_t>(std::ranges::count_if(
          d.under_way, [](const Command& c) { return c.to.at.kind == Endpoint::application && c.after != 0; }));
      d.finish();
    }
    EXPECT_EQ(behind > 0, !relays);
    EXPECT_EQ(d.reason(restored), Reason::ok);
  }
}

// --- replicas in two parts ------------------------------------------------------------------------------------------

// Device, peer and host, whose links are as fast. Version 1 leaves the device by both ways at once.
struct TwoParts {
  static constexpr TierIndex kPeer = 1, kBelow = 2;
  static Machine machine() {
    Machine m;
    m.tiers = {{.name = "device", .medium = Medium::device, .capacity = 16 * kMiB},
               {.name = "peer", .medium = Medium::device},
               {.name = "host", .medium = Medium::host, .capacity = 64 * kMiB}};
    connect(m);
    return m;
  }
  TwoParts() {
    lend(d, kPeer, 1, 16);
    const RequestId id = d.checkpoint(1, 8);
    while (!d.answered(id)) d.finish();
    EXPECT_EQ(used(kPeer), 4u);
    EXPECT_EQ(used(kBelow), 8u) << "there is room for the first bytes as well";
  }
  void all_is_there() {
    d.tell(event::StartPrefetch{});  // no flush ahead of need from here on
    while (!d.under_way.empty()) d.finish();
    EXPECT_EQ(d.by_link["device>peer"], 4 * kMiB);
    EXPECT_EQ(d.by_link["device>host"], 4 * kMiB);
    EXPECT_EQ(rest(), kBelow);
  }
  // Others take its place on the device.
  void leave_device() {
    all_is_there();
    for (Version v = 2; v < 4; ++v) ASSERT_EQ(d.reason(d.reserve(v, 8)), Reason::ok);
    ASSERT_EQ(fastest(), kPeer);
  }
  void recall_all(TierIndex tier, SegmentId segment) { recall(d, tier, segment, 0, d.now + 1'000'000'000); }
  CheckpointRef one() const { return *d.planner.find(0, 1); }
  TierIndex fastest() const { return d.planner.fastest_complete(one()); }
  TierIndex rest() const { return d.planner.rest_of(one(), kPeer); }
  Bytes used(TierIndex t) const { return d.planner.use(t).used / kMiB; }
  Driver d{machine()};
};
struct InParts : ::testing::Test, TwoParts {};

TEST_F(InParts, ItIsReadFromBoth) {
  leave_device();
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.by_link["peer>app"], 4 * kMiB);
  EXPECT_EQ(d.by_link["host>app"], 4 * kMiB);
  EXPECT_EQ(used(kPeer) + used(kBelow), 0u) << "both leave when it is consumed";
}

// The stream may be at work for long, and the program's next call may be what it waits for.
TEST_F(InParts, ARestoreInStreamOrderIsEnqueuedWholeWhateverTheStreamDoes) {
  leave_device();
  const RequestId read = d.restore(1, false, true);
  EXPECT_EQ(d.by_link["peer>app"], 4 * kMiB);
  EXPECT_EQ(d.by_link["host>app"], 4 * kMiB);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_EQ(used(kPeer) + used(kBelow), 0u);
}

TEST_F(InParts, OfWhatIsRecalledTheFirstBytesFollowTheOthers) {
  leave_device();
  recall_all(kPeer, 1);
  d.run();
  EXPECT_TRUE(returned(d, kPeer, 1));
  EXPECT_EQ(d.by_link["peer>host"], 4 * kMiB);
  EXPECT_EQ(fastest(), kBelow);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.by_link["host>app"], 8 * kMiB);
}

TEST_F(InParts, WhoeverReadsTheFirstBytesHasThemUntilItsEnd) {
  leave_device();
  const RequestId read = d.restore(1, true);
  recall_all(kPeer, 1);
  for (std::size_t i = 0; i < d.under_way.size();)  // the flush ends before the read does
    d.under_way[i].to.at.kind == Endpoint::application ? ++i : (d.finish(i), i = 0);
  EXPECT_FALSE(d.answered(read));
  EXPECT_EQ(used(kPeer), 4u);
  EXPECT_FALSE(returned(d, kPeer, 1));
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_TRUE(returned(d, kPeer, 1));
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(InParts, IfNothingBelowTakesItsRestItGoesUpWhole) {
  all_is_there();
  recall(d, kDevice, 0, 0);
  lend(d, kDevice, 1, 16);
  ASSERT_EQ(fastest(), kPeer);
  recall_all(kBelow, 0);
  d.run();
  EXPECT_TRUE(returned(d, kBelow, 0));
  EXPECT_EQ(fastest(), kDevice);
  EXPECT_EQ(used(kPeer), 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(InParts, ItIsLostWithItsFirstBytes) {
  leave_device();
  lose(d, kPeer, 1);
  d.run();
  EXPECT_EQ(d.read(1), Reason::lost);
  EXPECT_EQ(used(kPeer) + used(kBelow), 0u);
}

TEST_F(InParts, ItIsLostWithItsRest) {
  leave_device();
  lose(d, kBelow, 0);
  d.run();
  EXPECT_EQ(d.read(1), Reason::lost);
  EXPECT_EQ(used(kPeer) + used(kBelow), 0u);
}

TEST(Segments, WhileItLeavesTheDeviceEitherMayBeLostOrRecalled) {
  for (const TierIndex tier : {TwoParts::kPeer, TwoParts::kBelow})
    for (const bool lost : {false, true})
      for (const std::size_t arrived : {0u, 1u}) {
        TwoParts fresh;
        Driver& on = fresh.d;
        ASSERT_EQ(on.under_way.size(), 2u);
        if (arrived > 0) on.finish(on.under_way.front().to.at.index == tier ? 0 : 1);
        lost ? lose(on, tier, tier == TwoParts::kPeer ? 1 : 0)
             : fresh.recall_all(tier, tier == TwoParts::kPeer ? 1 : 0);
        on.run();
        EXPECT_EQ(on.read(1), Reason::ok);
        EXPECT_EQ(fresh.used(tier), 0u);
      }
}

TEST_F(InParts, WhatFailsIsUndoneAndGoesWholeTheNextTime) {
  d.finish(0, true, true);
  d.run();
  EXPECT_EQ(fastest(), kDevice);
  EXPECT_EQ(rest(), kNoTier);
  EXPECT_TRUE(d.planner.complete_on(one(), kPeer) || d.planner.complete_on(one(), kBelow));
  EXPECT_EQ(d.read(1), Reason::ok);
}

// The first of four, of which two must leave. A half of it would fill the peer.
TEST(Segments, APeersRoomIsDividedAmongAllThatIsHinted) {
  for (const bool hinted : {false, true}) {
    Driver d(TwoParts::machine());
    lend(d, TwoParts::kPeer, 1, 4);
    if (hinted) d.hint({4, 3, 2, 1});
    const RequestId id = d.checkpoint(1, 8);
    while (!d.answered(id)) d.finish();
    EXPECT_EQ(d.planner.use(TwoParts::kPeer).used, (hinted ? 2 : 4) * kMiB);
  }
}

// Two programs read. Version 1 is next of the second one, and version 4 makes way for it on the device: it goes to the
// peer, which has room for one, and where version 2 comes for the first program. Neither displaces the other for ever.
TEST(Segments, WhatMakesWayHasItsPlaceBelowUntilItHas) {
  constexpr TierIndex kPeer = 1;
  Machine m;
  m.tiers = {{.name = "device", .medium = Medium::device, .capacity = 16 * kMiB},
             {.name = "peer", .medium = Medium::device},
             {.name = "host", .medium = Medium::host, .capacity = 16 * kMiB}};
  connect(m);
  for (LinkSpec& link : m.links) link.chunk = 32 * kMiB;  // nothing goes in parts
  Driver d(m);
  const auto write = [&](Version v, HistoryId program) {
    const RequestId id = ++d.last;
    d.tell(event::Checkpoint{id, v, 8 * kMiB}, program);
    while (!d.answered(id)) d.step();
    ASSERT_EQ(d.reason(id), Reason::ok);
  };
  write(1, 1), write(2, 0), write(3, 0), write(4, 1);
  d.run();
  const auto on = [&](Version v, HistoryId program) { return d.planner.fastest_complete(*d.planner.find(program, v)); };
  ASSERT_EQ(on(1, 1), 2);
  ASSERT_EQ(on(2, 0), 2);
  d.tell(event::Hint{false, {3, 2}}, 0);
  d.tell(event::Hint{false, {1, 4}}, 1);
  d.tell(event::StartPrefetch{}, 0);
  d.tell(event::StartPrefetch{}, 1);
  lend(d, kPeer, 1, 8);
  d.run();
  EXPECT_EQ(on(1, 1), 0);
  EXPECT_EQ(on(3, 0), 0);
}

// Version 2 of the second program is to come to the host, for which version 1 of the first makes way there. Meanwhile
// version 1 is wanted on the device: its place on the host is as free as it was to be.
TEST(Segments, WhatMakesWayGivesItsPlaceThoughItIsWantedAboveMeanwhile) {
  constexpr TierIndex kFile = 2;
  Driver d(machine_of(8, 8, 64));
  d.adopt_on(3, 8, kFile, 1);
  d.adopt_on(2, 8, kFile, 1);
  const auto on = [&](Version v, HistoryId program) { return d.planner.fastest_complete(*d.planner.find(program, v)); };
  const auto is = [](const Place& place, TierIndex t) { return place.at == Endpoint{Endpoint::tier, t}; };
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.tell(event::Hint{false, {3, 2}}, 1);
  d.tell(event::StartPrefetch{}, 0);
  d.tell(event::StartPrefetch{}, 1);
  const auto leaves = [&](const Command& c) { return is(c.from, kHostTier) && is(c.to, kFile); };
  for (int i = 0; i < 100 && std::ranges::none_of(d.under_way, leaves); ++i) d.step();
  const auto finish_all_others = [&] {
    for (std::size_t i = 0; i < d.under_way.size();) leaves(d.under_way[i]) ? ++i : (d.finish(i), i = 0);
    ASSERT_FALSE(d.under_way.empty());
  };
  finish_all_others();
  ASSERT_EQ(on(3, 1), kDevice);
  d.tell(event::Hint{false, {1}}, 0);
  d.tell(event::Restore{++d.last, 3}, 1);
  finish_all_others();
  ASSERT_EQ(on(1, 0), kDevice);
  d.run();
  EXPECT_EQ(on(1, 0), kDevice);
  EXPECT_EQ(on(2, 1), kHostTier);
}

TEST(Segments, OnlyMemoryIsLent) {
  Driver d(machine_of(8, 0, 64));
  EXPECT_THROW(lend(d, 1, 1, 4), std::logic_error);
  EXPECT_THROW(recall(d, kLocal, 0, 0), std::logic_error);
}

}  // namespace
}  // namespace ebb::planner
