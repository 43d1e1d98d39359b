// Memory that ends earlier than planned, with what was to be beyond its end.
#include <stdexcept>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

void shrink(Driver& d, TierIndex tier, Bytes mib) { d.tell(event::Recall{tier, 0, mib * kMiB}); }

// As a driver does: in the order given, what has no memory is reported as full; the rest stays under way.
void fail_beyond(Driver& d, TierIndex tier, Bytes mib) {
  for (std::size_t i = 0; i < d.under_way.size();) {
    const Command& c = d.under_way[i];
    const auto there = [&](const Place& p) {
      return p.at == Endpoint{Endpoint::tier, tier} && p.offset + c.length > mib * kMiB;
    };
    if (there(c.to) || there(c.from))
      d.finish(i, true, true);
    else
      ++i;
  }
}

TierUse use(const Driver& d, TierIndex t) { return d.planner.use(t); }

TEST(Shrink, AWriteBeyondTheEndGoesElsewhere) {
  Driver d(machine_of(16, 0, 64));
  const RequestId first = d.checkpoint(1, 8), second = d.checkpoint(2, 8);
  shrink(d, 0, 12);
  fail_beyond(d, 0, 12);
  d.run();
  EXPECT_EQ(d.reason(first), Reason::ok);
  EXPECT_EQ(d.reason(second), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(use(d, 0).capacity, 12 * kMiB);
  EXPECT_EQ(d.planner.counters().failures, 0u) << "nothing has failed";
}

TEST(Shrink, ATierThatRefusedForWantOfMemoryStillTakesWhatFits) {
  Driver d(machine_of(16, 0, 0));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  const RequestId second = d.checkpoint(2, 8, kNever);
  shrink(d, 0, 8);
  fail_beyond(d, 0, 8);
  EXPECT_FALSE(d.answered(second)) << "there is room for it once version 1 has gone";
  EXPECT_EQ(d.read(1), Reason::ok);
  d.run();
  EXPECT_EQ(d.reason(second), Reason::ok);
}

TEST(Shrink, WhoWaitsForRoomThatCannotComeIsToldSo) {
  Driver d(machine_of(16, 0, 0));
  ASSERT_EQ(d.write(1, 14), Reason::ok);
  const RequestId write = d.checkpoint(2, 10, kNever);
  const RequestId reserve = d.reserve(3, 10, kNever);
  const RequestId fits = d.reserve(4, 4, kNever);
  ASSERT_FALSE(d.answered(write) || d.answered(reserve) || d.answered(fits));
  shrink(d, 0, 8);
  EXPECT_EQ(d.reason(write), Reason::too_large);
  EXPECT_EQ(d.reason(reserve), Reason::too_large);
  EXPECT_NE(d.answers.at(write).detail.find("of 8388608 bytes"), std::string::npos) << d.answers.at(write).detail;
  EXPECT_FALSE(d.answered(fits));
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.reason(fits), Reason::ok);
  EXPECT_EQ(d.reason(d.checkpoint(5, 10)), Reason::too_large);
}

TEST(Shrink, ABorrowThatCannotBeServedIsToldSo) {
  Driver d(machine_of(8, 64, 0));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  ASSERT_EQ(d.write(2, 8), Reason::ok);
  d.run();
  const RequestId keeps = d.borrow(1);
  ASSERT_EQ(d.reason(keeps), Reason::ok);
  const RequestId waits = d.borrow(2, kNever);
  ASSERT_FALSE(d.answered(waits));
  shrink(d, 0, 4);
  EXPECT_EQ(d.reason(waits), Reason::too_large);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(use(d, 0).used, 8 * kMiB) << "it stays while it is borrowed";
  d.tell(event::Release{keeps, true});
  d.run();
  EXPECT_EQ(use(d, 0).used, 0u) << "it has gone down and leaves";
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Shrink, WhatHasCopiesBelowLeavesAtOnceAndWhatHasNotWhenItHas) {
  Driver d(machine_of(16, 64, 0));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.run();  // flushed ahead
  ASSERT_EQ(use(d, 1).used, 8 * kMiB);
  d.tell(event::StartPrefetch{});  // no flush from here on unless someone needs it
  ASSERT_EQ(d.write(2, 8), Reason::ok);
  d.tell(event::StartPrefetch{});
  shrink(d, 0, 4);
  EXPECT_EQ(use(d, 0).used, 8 * kMiB) << "version 2 alone";
  EXPECT_EQ(use(d, 0).largest_gap, 4 * kMiB) << "no gap beyond the end";
  d.run();
  EXPECT_EQ(use(d, 0).used, 0u);
  EXPECT_EQ(use(d, 0).largest_gap, 4 * kMiB);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.read(2), Reason::ok);
}

TEST(Shrink, TheOnlyCopyStaysUntilItIsConsumed) {
  Driver d(machine_of(16, 0, 0));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  ASSERT_EQ(d.write(2, 8), Reason::ok);
  shrink(d, 0, 4);
  d.run();
  EXPECT_EQ(use(d, 0).used, 16 * kMiB);
  EXPECT_EQ(use(d, 0).capacity, 4 * kMiB);
  EXPECT_EQ(d.reason(d.checkpoint(3, 4)), Reason::no_space);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(use(d, 0).largest_gap, 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(use(d, 0).largest_gap, 4 * kMiB);
  EXPECT_EQ(d.write(3, 4), Reason::ok);
}

TEST(Shrink, AnEvictionCountsOnlyWhatItGivesBeforeTheEnd) {
  Driver d(machine_of(16, 0, 64));
  for (Version v = 1; v <= 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.run();  // all have a copy below
  const RequestId loan = d.borrow(3);
  ASSERT_EQ(d.reason(loan), Reason::ok);
  shrink(d, 0, 10);  // across version 3
  EXPECT_EQ(d.write(5, 8), Reason::ok);
  EXPECT_EQ(use(d, 0).used, 12 * kMiB) << "version 5 in place of 1 and 2";
  d.tell(event::Release{loan, true});
  d.run();
  EXPECT_EQ(use(d, 0).largest_gap, 2 * kMiB);
}

TEST(Shrink, ToNothingIsAsIfTheTierWereNotThere) {
  Driver d(machine_of(16, 16, 64));
  const RequestId first = d.checkpoint(1, 8);
  shrink(d, 0, 0);
  fail_beyond(d, 0, 0);
  d.run();
  EXPECT_EQ(d.reason(first), Reason::ok);
  EXPECT_EQ(use(d, 0).used, 0u);
  EXPECT_EQ(use(d, 0).capacity, 0u);
  for (Version v = 2; v <= 4; ++v) EXPECT_EQ(d.write(v, 8), Reason::ok);
  d.hint({1, 2, 3, 4});
  EXPECT_EQ(d.reason(d.reserve(5, 1)), Reason::too_large);
  EXPECT_EQ(d.reason(d.borrow(1)), Reason::too_large);
  d.run();
  for (Version v = 1; v <= 4; ++v) EXPECT_EQ(d.read(v), Reason::ok);
}

TEST(Shrink, ALastTierThatIsGoneIsNoPlaceToWaitFor) {
  Driver d(machine_of(16, 16, 0));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  const RequestId below = d.wait(1, 1);
  ASSERT_FALSE(d.answered(below));
  shrink(d, 1, 0);
  fail_beyond(d, 1, 0);
  d.run();
  EXPECT_EQ(d.reason(below), Reason::no_space);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Shrink, AFlushWhoseMemoryDoesNotComeGoesFarther) {
  Driver d(machine_of(16, 16, 64));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  ASSERT_FALSE(d.under_way.empty());
  ASSERT_EQ(d.under_way[0].to.at.index, 1);
  shrink(d, 1, 4);
  fail_beyond(d, 1, 4);
  d.run();
  EXPECT_EQ(use(d, 1).used, 0u);
  EXPECT_EQ(use(d, 2).used, 8 * kMiB) << "without a second's grace, as after a failure";
  EXPECT_LT(d.now, 1'000'000'000);
}

TEST(Shrink, WhatHasCopiesThatAreAllGivenMayStillArrive) {
  Driver d(machine_of(16, 0, 0));
  const RequestId first = d.checkpoint(1, 4);
  ASSERT_EQ(d.under_way.size(), 1u);
  shrink(d, 0, 2);
  d.run();  // its memory was there
  EXPECT_EQ(d.reason(first), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(use(d, 0).used, 0u);
}

TEST(Shrink, TwiceAndNeverBack) {
  Driver d(machine_of(16, 0, 64));
  shrink(d, 0, 12);
  shrink(d, 0, 12);
  shrink(d, 0, 8);
  EXPECT_EQ(use(d, 0).capacity, 8 * kMiB);
  EXPECT_EQ(use(d, 0).largest_gap, 8 * kMiB);
  EXPECT_THROW(shrink(d, 0, 12), std::logic_error);
  EXPECT_THROW(shrink(d, 1, 1), std::logic_error) << "a file is not memory";
  EXPECT_THROW(shrink(d, 2, 1), std::logic_error);
  EXPECT_THROW(shrink(d, kNoTier, 1), std::logic_error);
}

TEST(Shrink, ReservedMemoryStaysUntilItIsGivenBack) {
  Driver d(machine_of(16, 0, 64));
  const RequestId computed = d.reserve(1, 8), given_up = d.reserve(2, 8);
  ASSERT_EQ(d.reason(given_up), Reason::ok);
  shrink(d, 0, 4);
  d.tell(event::Abandon{given_up});
  EXPECT_EQ(use(d, 0).used, 8 * kMiB);
  EXPECT_EQ(d.reason(d.reserve(2, 8)), Reason::too_large);
  d.tell(event::Commit{computed});
  d.run();
  EXPECT_EQ(use(d, 0).used, 0u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

// In stream order: nothing of a copy without memory was begun, so its call is valid and the copy can be given again.
TEST(Shrink, AWriteInStreamOrderIsGivenAgain) {
  Driver d(machine_of(16, 16, 0));
  const RequestId id = d.checkpoint(1, 8, 0, true);
  ASSERT_EQ(d.under_way.size(), 2u);
  shrink(d, 0, 4);
  fail_beyond(d, 0, 4);
  EXPECT_FALSE(d.answered(id));
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
  EXPECT_EQ(use(d, 1).used, 8 * kMiB);
}

TEST(Shrink, AWriteInStreamOrderWhoseCopiesWereBegunIsNotGivenAgain) {
  Driver d(machine_of(16, 16, 0));
  const RequestId id = d.checkpoint(1, 8, 0, true);
  shrink(d, 0, 4);
  d.finish(0, true);  // on the stream
  EXPECT_FALSE(d.answered(id));
  d.finish(0, true, true);
  EXPECT_EQ(d.reason(id), Reason::lost);
}

TEST(Shrink, ARestoreInStreamOrderReadsTheCopyBelow) {
  Driver d(machine_of(8, 64, 0));
  ASSERT_EQ(d.write(2, 8), Reason::ok);
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  d.run();
  d.hint({1});
  d.tell(event::StartPrefetch{});
  const RequestId id = d.restore(1, false, true);
  ASSERT_EQ(d.under_way.size(), 4u);
  ASSERT_NE(d.under_way[3].after, 0u);
  shrink(d, 0, 4);
  d.finish(1, true, true);  // the second chunk of the prefetch
  EXPECT_EQ(d.out.spoiled, std::vector{id}) << "it must not return on bytes that never came";
  fail_beyond(d, 0, 4);
  d.run();
  EXPECT_EQ(d.reason(id), Reason::ok);
}

}  // namespace
}  // namespace ebb::planner
