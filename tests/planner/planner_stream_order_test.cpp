// Calls in stream order: what the planner does while streams of the application hold back its copies.
#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

TEST(StreamOrder, ACheckpointThatFindsRoomIsSentAtOnce) {
  Driver d(machine_of(16, 16, 64));
  const RequestId id = d.checkpoint(1, 4, 0, true);
  ASSERT_EQ(d.under_way.size(), 1u);
  EXPECT_EQ(d.under_way[0].to.at.index, 0);
  EXPECT_FALSE(d.answered(id));
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, WhatPassesTheRingWaitsForItsStream) {
  Driver d(machine_of(0, 0, 64));
  const RequestId id = d.checkpoint(1, 4, 0, true);
  EXPECT_TRUE(d.under_way.empty()) << "a slot of the ring would be held for as long as the stream likes";
  EXPECT_EQ(d.write(2, 4), Reason::ok) << "others go on";
  EXPECT_FALSE(d.answered(id));
  d.tell(event::Ready{id});
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
  const RequestId back = d.restore(1, false, true);
  EXPECT_TRUE(d.under_way.empty());
  d.tell(event::Ready{back});
  d.run();
  EXPECT_EQ(d.reason(back), Reason::ok);
}

TEST(StreamOrder, AHeldCallCanBeGivenUp) {
  Driver d(machine_of(0, 0, 64));
  const RequestId id = d.checkpoint(1, 4, 0, true);
  d.tell(event::Cancel{id});
  EXPECT_EQ(d.reason(id), Reason::cancelled);
  d.tell(event::Ready{id});  // comes too late for anything
  EXPECT_EQ(d.write(1, 4), Reason::ok);
}

TEST(StreamOrder, AFailedCopyIsNotTriedAgainForItsSourceIsTheApplicationsAgain) {
  Driver d(machine_of(16, 16, 64));
  const RequestId id = d.checkpoint(1, 4, 0, true);
  d.finish(0, true);
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::unknown_version);
  EXPECT_EQ(d.write(1, 4), Reason::ok);
}

TEST(StreamOrder, AFailedReadLosesNothing) {
  Driver d(machine_of(16, 16, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  d.run();
  const RequestId id = d.restore(1, false, true);
  d.finish(0, true);
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(StreamOrder, ASubmittedReservationIsBeingWritten) {
  Driver d(machine_of(16, 16, 64));
  const RequestId held = d.reserve(1, 4);
  d.submit(held);
  const RequestId read = d.restore(1);
  EXPECT_FALSE(d.answered(read)) << "its bytes will come";
  d.tell(event::Commit{held});
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(StreamOrder, ASubmittedReservationCanBeBorrowedAndDropped) {
  Driver d(machine_of(16, 16, 64));
  const RequestId held = d.reserve(1, 4);
  d.submit(held);
  const RequestId loan = d.borrow(1);
  EXPECT_FALSE(d.answered(loan));
  d.tell(event::Commit{held});
  d.run();
  EXPECT_EQ(d.reason(loan), Reason::ok);
  const RequestId other = d.reserve(2, 4);
  d.submit(other);
  d.tell(event::Drop{2});
  EXPECT_EQ(d.read(2), Reason::unknown_version);
  d.tell(event::Commit{other});
  d.run();
  d.tell(event::Release{loan});
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(StreamOrder, WhatEndsByItselfIsWaitedFor) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  const RequestId loan = d.borrow(1);
  ASSERT_EQ(d.reason(loan), Reason::ok);
  EXPECT_EQ(d.reason(d.checkpoint(3, 4)), Reason::no_space);
  d.submit(loan);
  EXPECT_EQ(d.read(1), Reason::consumed) << "it was given back";
  const RequestId id = d.checkpoint(4, 4);
  EXPECT_FALSE(d.answered(id)) << "the loan ends when its stream is done";
  d.tell(event::Release{loan});
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, WhatHoldsNoBytesIsLetGoOfOnce) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 0), Reason::ok);
  const RequestId loan = d.borrow(1);
  d.submit(loan);  // consumed: its place in the table is free
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  d.tell(event::Release{loan});
  EXPECT_EQ(d.read(2), Reason::ok);
  const RequestId held = d.reserve(3, 0);
  d.submit(held);
  d.tell(event::Drop{3});
  const RequestId write = d.reserve(4, 4);
  d.tell(event::Commit{held, true});
  d.tell(event::Abandon{write});
  d.tell(event::Release{held});
  EXPECT_EQ(d.read(4), Reason::unknown_version);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(StreamOrder, WhatPassesTheRingCountsOnItsLinks) {
  Machine m = machine_of(0, 0, 64, kMiB);
  for (LinkSpec& l : m.links) l.depth = 1;
  Driver d(m);
  const RequestId id = d.checkpoint(1, 8, 0, true);
  d.tell(event::Ready{id});
  while (!d.answered(id)) {
    std::map<int, int> held;
    for (const Command& c : d.under_way) EXPECT_LE(++held[c.link], 1);
    d.step();
  }
}

TEST(StreamOrder, CommittedMemoryStaysInUseUntilItIsReleased) {
  Driver d(machine_of(8, 0, 64));
  const RequestId held = d.reserve(1, 8);
  d.tell(event::Commit{held, true});
  d.run();  // flushed meanwhile
  EXPECT_EQ(d.reason(d.reserve(2, 8)), Reason::no_space);
  d.tell(event::Release{held});
  EXPECT_EQ(d.reason(d.reserve(3, 8)), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

// Version 1 (8 MiB, two chunks) is on its way from the host to the device; nothing else moves.
struct OnItsWayUp : ::testing::Test {
  OnItsWayUp() : d(machine_of(8, 64, 0)) {
    EXPECT_EQ(d.write(2, 8), Reason::ok);
    EXPECT_EQ(d.write(1, 8), Reason::ok);  // finds the device full
    d.run();
    d.hint({1});
    d.tell(event::StartPrefetch{});
    for (const Command& c : d.under_way) EXPECT_EQ(link_of(c), "host>device");
    EXPECT_EQ(d.under_way.size(), 2u);
  }
  std::string link_of(const Command& c) const {
    return d.planner.machine().links.at(static_cast<std::size_t>(c.link)).name;
  }
  void return_from(RequestId id) { d.tell(event::Submit{.request = id}); }
  Driver d;
};

TEST_F(OnItsWayUp, ARestoreInStreamOrderComesAfterTheLastCopyThatIsOrdered) {
  const RequestId id = d.restore(1, false, true);
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

TEST_F(OnItsWayUp, NothingWaitsForWhatHasArrived) {
  d.finish();
  d.restore(1, false, true);
  ASSERT_EQ(d.under_way.size(), 3u);
  EXPECT_EQ(d.under_way[1].after, 0u);
  EXPECT_EQ(d.under_way[2].after, d.under_way[0].id);
  d.run();
}

TEST_F(OnItsWayUp, ARestoreThatWaitsForItsCopiesComesAfterTheyHaveArrived) {
  const RequestId id = d.restore(1);
  EXPECT_EQ(d.under_way.size(), 2u);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST_F(OnItsWayUp, TheReadMayBeReportedBeforeWhatItCameAfter) {
  const RequestId id = d.restore(1, false, true);
  return_from(id);
  d.finish(2);
  d.finish(2);
  EXPECT_EQ(d.reason(id), Reason::ok);
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(OnItsWayUp, ACopyThatFailsSpoilsWhatCameAfterItBeforeTheCallReturns) {
  const RequestId id = d.restore(1, false, true);
  d.finish(1, true);  // the second chunk; the first is what it should be
  EXPECT_EQ(d.out.spoiled, std::vector{id});
  EXPECT_FALSE(d.answered(id)) << "its copies are still on the stream";
  d.run();
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok) << "the copy on the host is good";
}

TEST_F(OnItsWayUp, ACopyThatFailsForGoodSpoilsToo) {
  const RequestId id = d.restore(1, false, true);
  d.finish(0, true, true);
  EXPECT_EQ(d.out.spoiled, std::vector{id});
  d.run();
  EXPECT_EQ(d.reason(id), Reason::lost);
  EXPECT_EQ(d.read(1), Reason::ok);
}

// One copy reads what two bring, of which the first was sent again behind the second.
TEST(StreamOrder, ACopyComesAfterTheLastThatWasOrderedOfThoseThatBringItsBytes) {
  Machine m = machine_of(8, 64, 0);
  m.links[static_cast<std::size_t>(find_link(m.links, "device>app"))].chunk = 8 * kMiB;
  Driver d(m);
  ASSERT_EQ(d.write(2, 8), Reason::ok);
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.run();
  d.hint({1});
  d.tell(event::StartPrefetch{});
  ASSERT_EQ(d.under_way.size(), 2u);
  d.finish(0, true);
  ASSERT_EQ(d.under_way.size(), 2u);
  const CommandId again = d.under_way.back().id;
  const RequestId id = d.restore(1, false, true);
  ASSERT_EQ(d.under_way.size(), 3u);
  EXPECT_EQ(d.under_way.back().length, 8 * kMiB);
  EXPECT_EQ(d.under_way.back().after, again);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST_F(OnItsWayUp, WhatFailedBeforeTheCallSpoilsNothing) {
  d.finish(0, true);
  const RequestId id = d.restore(1, false, true);
  EXPECT_TRUE(d.out.spoiled.empty());
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

// The second chunk never comes to the device; the first has been copied on, and its call may have been told so.
TEST(StreamOrder, WhatACallHasGotIsNotCopiedAgain) {
  Driver d(machine_of(8, 0, 64));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.wait_all(1);
  d.run();
  ASSERT_EQ(d.write(2, 8), Reason::ok);  // in place of version 1
  d.run();
  ASSERT_EQ(d.read(2), Reason::ok);
  d.hint({1});
  d.tell(event::StartPrefetch{});
  const auto next = [&](std::string_view link, Bytes offset) {
    for (std::size_t i = 0; i < d.under_way.size(); ++i) {
      const Command& c = d.under_way[i];
      if (d.planner.machine().links.at(static_cast<std::size_t>(c.link)).name == link && c.offset == offset) return i;
    }
    ADD_FAILURE() << "nothing goes over " << link;
    return std::size_t{0};
  };
  d.finish(next("local>host", 0));
  d.finish(next("host>device", 0));
  const RequestId id = d.restore(1, false, true);
  d.finish(next("local>host", 4 * kMiB));
  d.finish(next("host>device", 4 * kMiB), true, true);
  d.finish(next("device>app", 0));
  d.tell(event::Ready{id});
  while (!d.answered(id) && !d.under_way.empty()) {
    for (const Command& c : d.out.commands) EXPECT_GE(c.offset, 4 * kMiB) << "again";
    d.finish();
  }
  EXPECT_EQ(d.reason(id), Reason::ok);
}

TEST(StreamOrder, ARestoreComesAfterTheCheckpointThatIsStillOnItsStream) {
  Driver d(machine_of(16, 16, 0));
  const RequestId write = d.checkpoint(1, 4, 0, true);
  const RequestId read = d.restore(1, false, true);
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
  d.checkpoint(1, 4);
  const RequestId read = d.restore(1, false, true);
  EXPECT_EQ(d.under_way.size(), 1u);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

}  // namespace
}  // namespace ebb::planner
