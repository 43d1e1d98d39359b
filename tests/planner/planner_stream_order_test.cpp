// Calls in stream order: what the planner does while streams of the application hold back its copies.
#include "driver.hpp"

namespace ebb::policy {
namespace {

using namespace testing_support;

TEST(StreamOrder, ACheckpointThatFindsRoomIsSentAtOnce) {
  Driver d(machine_of(16, 16, 64));
  const RequestId id = ordered(d, EventKind::checkpoint, 1, 4);
  ASSERT_EQ(d.under_way.size(), 1u);
  EXPECT_EQ(d.under_way[0].to.at.index, 0);
  EXPECT_FALSE(d.answered(id));
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, WhatPassesTheRingWaitsForItsStream) {
  Driver d(machine_of(0, 0, 64));
  const RequestId id = ordered(d, EventKind::checkpoint, 1, 4);
  EXPECT_TRUE(d.under_way.empty()) << "a slot of the ring would be held for as long as the stream likes";
  EXPECT_EQ(d.write(2, 4), Reason::ok) << "others go on";
  EXPECT_FALSE(d.answered(id));
  d.tell(EventKind::ready, 0, false, id);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
  const RequestId back = ordered(d, EventKind::restore, 1);
  EXPECT_TRUE(d.under_way.empty());
  d.tell(EventKind::ready, 0, false, back);
  d.run();
  EXPECT_EQ(d.reason(back), Reason::ok);
}

TEST(StreamOrder, AHeldCallCanBeGivenUp) {
  Driver d(machine_of(0, 0, 64));
  const RequestId id = ordered(d, EventKind::checkpoint, 1, 4);
  d.tell(EventKind::cancel, 0, false, id);
  EXPECT_EQ(d.reason(id), Reason::cancelled);
  d.tell(EventKind::ready, 0, false, id);  // comes too late for anything
  EXPECT_EQ(d.write(1, 4), Reason::ok);
}

TEST(StreamOrder, AFailedCopyIsNotTriedAgainForItsSourceIsTheApplicationsAgain) {
  Driver d(machine_of(16, 16, 64));
  const RequestId id = ordered(d, EventKind::checkpoint, 1, 4);
  d.finish(0, true);
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::unknown_version);
  EXPECT_EQ(d.write(1, 4), Reason::ok);
}

TEST(StreamOrder, AFailedReadLosesNothing) {
  Driver d(machine_of(16, 16, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  d.run();
  const RequestId id = ordered(d, EventKind::restore, 1);
  d.finish(0, true);
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(StreamOrder, ASubmittedReservationIsBeingWritten) {
  Driver d(machine_of(16, 16, 64));
  const RequestId held = d.call(EventKind::reserve, 1, 4);
  submit(d, held);
  const RequestId read = d.call(EventKind::restore, 1);
  EXPECT_FALSE(d.answered(read)) << "its bytes will come";
  d.tell(EventKind::commit, 1, false, held);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(StreamOrder, ASubmittedReservationCanBeBorrowedAndDropped) {
  Driver d(machine_of(16, 16, 64));
  const RequestId held = d.call(EventKind::reserve, 1, 4);
  submit(d, held);
  const RequestId loan = d.call(EventKind::borrow, 1);
  EXPECT_FALSE(d.answered(loan));
  d.tell(EventKind::commit, 1, false, held);
  d.run();
  EXPECT_EQ(d.reason(loan), Reason::ok);
  const RequestId other = d.call(EventKind::reserve, 2, 4);
  submit(d, other);
  d.tell(EventKind::drop, 2);
  EXPECT_EQ(d.read(2), Reason::unknown_version);
  d.tell(EventKind::commit, 2, false, other);
  d.run();
  d.tell(EventKind::release, 1, false, loan);
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(StreamOrder, WhatEndsByItselfIsWaitedFor) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  const RequestId loan = d.call(EventKind::borrow, 1);
  ASSERT_EQ(d.reason(loan), Reason::ok);
  EXPECT_EQ(d.reason(d.call(EventKind::checkpoint, 3, 4)), Reason::no_space);
  submit(d, loan);
  EXPECT_EQ(d.read(1), Reason::consumed) << "it was given back";
  const RequestId id = d.call(EventKind::checkpoint, 4, 4);
  EXPECT_FALSE(d.answered(id)) << "the loan ends when its stream is done";
  d.tell(EventKind::release, 1, false, loan);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, WhatHoldsNoBytesIsLetGoOfOnce) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 0), Reason::ok);
  const RequestId loan = d.call(EventKind::borrow, 1);
  submit(d, loan);  // consumed: its place in the table is free
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  d.tell(EventKind::release, 1, false, loan);
  EXPECT_EQ(d.read(2), Reason::ok);
  const RequestId held = d.call(EventKind::reserve, 3, 0);
  submit(d, held);
  d.tell(EventKind::drop, 3);
  const RequestId write = d.call(EventKind::reserve, 4, 4);
  d.tell(EventKind::commit, 3, true, held);
  d.tell(EventKind::abandon, 4, false, write);
  d.tell(EventKind::release, 3, false, held);
  EXPECT_EQ(d.read(4), Reason::unknown_version);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(StreamOrder, WhatPassesTheRingCountsOnItsLinks) {
  Machine m = machine_of(0, 0, 64, kMiB);
  for (LinkSpec& l : m.links) l.depth = 1;
  Driver d(m);
  const RequestId id = ordered(d, EventKind::checkpoint, 1, 8);
  d.tell(EventKind::ready, 0, false, id);
  while (!d.answered(id)) {
    std::map<int, int> held;
    for (const Command& c : d.under_way) EXPECT_LE(++held[c.link], 1);
    d.step();
  }
}

TEST(StreamOrder, CommittedMemoryStaysInUseUntilItIsReleased) {
  Driver d(machine_of(8, 0, 64));
  const RequestId held = d.call(EventKind::reserve, 1, 8);
  d.tell(EventKind::commit, 1, true, held);
  d.run();  // flushed meanwhile
  EXPECT_EQ(d.reason(d.call(EventKind::reserve, 2, 8)), Reason::no_space);
  d.tell(EventKind::release, 1, false, held);
  EXPECT_EQ(d.reason(d.call(EventKind::reserve, 3, 8)), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

// Version 1 (8 MiB, two chunks) is on its way from the host to the device; nothing else moves.
struct OnItsWayUp : ::testing::Test {
  OnItsWayUp() : d(machine_of(8, 64, 0)) {
    EXPECT_EQ(d.write(2, 8), Reason::ok);
    EXPECT_EQ(d.write(1, 8), Reason::ok);  // finds the device full
    d.run();
    d.hint({1});
    d.tell(EventKind::start_prefetch, 0);
    for (const Command& c : d.under_way) EXPECT_EQ(link_of(c), "host>device");
    EXPECT_EQ(d.under_way.size(), 2u);
  }
  std::string link_of(const Command& c) const {
    return d.planner.machine().links.at(static_cast<std::size_t>(c.link)).name;
  }
  void return_from(RequestId id) {
    Event e;
    e.kind = EventKind::submit;
    e.request = id;
    d.send(e);
  }
  Driver d;
};

TEST_F(OnItsWayUp, ARestoreInStreamOrderComesAfterTheLastCopyThatIsOrdered) {
  const RequestId id = ordered(d, EventKind::restore, 1);
  ASSERT_EQ(d.under_way.size(), 4u) << "both chunks are sent, each after the one that brings it";
  EXPECT_EQ(d.under_way[2].after, d.under_way[0].id);
  EXPECT_EQ(d.under_way[3].after, d.under_way[1].id);
  return_from(id);
  EXPECT_EQ(d.read(1), Reason::consumed);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
  EXPECT_EQ(d.planner.use(TierIndex{1}).used, 8 * kMiB) << "version 2";
}

TEST_F(OnItsWayUp, WhatHasArrivedIsComeAfterByNobody) {
  d.finish();
  ordered(d, EventKind::restore, 1);
  ASSERT_EQ(d.under_way.size(), 3u);
  EXPECT_EQ(d.under_way[1].after, 0u);
  EXPECT_EQ(d.under_way[2].after, d.under_way[0].id);
  d.run();
}

TEST_F(OnItsWayUp, ARestoreThatWaitsForItsCopiesComesAfterTheyHaveArrived) {
  const RequestId id = d.call(EventKind::restore, 1);
  EXPECT_EQ(d.under_way.size(), 2u);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST_F(OnItsWayUp, TheReadMayBeReportedBeforeWhatItCameAfter) {
  const RequestId id = ordered(d, EventKind::restore, 1);
  return_from(id);
  d.finish(2);
  d.finish(2);
  EXPECT_EQ(d.reason(id), Reason::ok);
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(OnItsWayUp, ACopyThatFailsSpoilsWhatCameAfterItBeforeTheCallReturns) {
  const RequestId id = ordered(d, EventKind::restore, 1);
  d.finish(1, true);  // the second chunk; the first is what it should be
  EXPECT_EQ(d.out.spoiled, std::vector{id});
  EXPECT_FALSE(d.answered(id)) << "its copies are still on the stream";
  d.run();
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok) << "the copy on the host is good";
}

TEST_F(OnItsWayUp, ACopyThatFailsForGoodSpoilsToo) {
  const RequestId id = ordered(d, EventKind::restore, 1);
  d.finish(0, true, true);
  EXPECT_EQ(d.out.spoiled, std::vector{id});
  d.run();
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(OnItsWayUp, WhatFailedBeforeTheCallSpoilsNothing) {
  d.finish(0, true);
  const RequestId id = ordered(d, EventKind::restore, 1);
  EXPECT_TRUE(d.out.spoiled.empty());
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, ARestoreComesAfterTheCheckpointThatIsStillOnItsStream) {
  Driver d(machine_of(16, 16, 0));
  const RequestId write = ordered(d, EventKind::checkpoint, 1, 4);
  const RequestId read = ordered(d, EventKind::restore, 1);
  ASSERT_EQ(d.under_way.size(), 2u);
  EXPECT_EQ(d.under_way[1].after, d.under_way[0].id);
  d.finish(0, true);
  EXPECT_EQ(d.out.spoiled, std::vector{read});
  d.run();
  EXPECT_EQ(d.reason(write), Reason::lost);
  EXPECT_NE(d.reason(read), Reason::ok);
}

TEST(StreamOrder, NoDeviceCanComeAfterACopyOfTheCallingThread) {
  Driver d(machine_of(16, 16, 0));
  d.call(EventKind::checkpoint, 1, 4);
  const RequestId read = ordered(d, EventKind::restore, 1);
  EXPECT_EQ(d.under_way.size(), 1u);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

}  // namespace
}  // namespace ebb::policy
