// The planner by hand, rule by rule.
#include <stdexcept>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

TEST(Planner, AShotComesBackInReverseAndNothingIsWrittenTwice) {
  Driver d(machine_of(16, 32, 1024));
  std::vector<Version> order;
  for (Version v = 31; v >= 0; --v) order.push_back(v);
  d.hint(order);
  for (Version v = 0; v < 32; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  for (Version v = 31; v >= 0; --v) ASSERT_EQ(d.read(v), Reason::ok) << v;
  d.run();
  EXPECT_LE(d.by_link["host>local"], 32 * 4 * kMiB);
  EXPECT_GE(d.by_link["local>host"], (32 * 4 - 48) * kMiB);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used + d.planner.use(TierIndex{1}).used + d.planner.use(TierIndex{2}).used, 0u);
  EXPECT_EQ(d.planner.pending(), 0u);
}

TEST(Planner, RefusesByName) {
  Driver d(machine_of(8, 8, 32));
  EXPECT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_EQ(d.write(1, 4), Reason::version_exists);
  EXPECT_EQ(d.write(2, 33), Reason::too_large);
  EXPECT_EQ(d.read(7), Reason::unknown_version);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::consumed);
  EXPECT_EQ(d.write(1, 4), Reason::ok) << "consumed in an ephemeral store: it may be written again";
  d.tell(event::Drop{1});
  EXPECT_EQ(d.read(1), Reason::unknown_version);
  EXPECT_EQ(d.write(1, 4), Reason::ok) << "dropped: it may be written again";
}

TEST(Planner, AHistoryIsForgottenWhenNothingOfItIsLeft) {
  Driver d(machine_of(8, 8, 32));
  EXPECT_TRUE(d.planner.idle(0));
  EXPECT_TRUE(d.planner.idle(7)) << "never heard of";
  EXPECT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_FALSE(d.planner.idle(0)) << "a checkpoint";
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_FALSE(d.planner.idle(0)) << "it is known to be consumed";
  d.tell(event::DropAll{});
  EXPECT_TRUE(d.planner.idle(0));
  d.hint({3});
  EXPECT_FALSE(d.planner.idle(0)) << "a hint";
  d.tell(event::DropAll{});
  d.checkpoint(2, 4);
  d.tell(event::DropAll{});
  EXPECT_FALSE(d.planner.idle(0)) << "copies of what was dropped are under way";
  EXPECT_THROW(d.tell(event::Forget{}), std::logic_error);
  d.run();
  EXPECT_TRUE(d.planner.idle(0));
  d.tell(event::Forget{});
  d.planner.check();
  EXPECT_EQ(d.write(1, 4), Reason::ok) << "its number may be another's";
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Planner, FullOfUnconsumedDataRefusesWithEachTiersUseAndLosesNothing) {
  Driver d(machine_of(8, 8, 16));
  Version v = 0;
  while (d.write(v, 4) == Reason::ok) ++v;
  EXPECT_EQ(v, 8) << "all 32 MiB are used, each byte once";
  EXPECT_EQ(d.reason(d.last), Reason::no_space);
  const std::string detail = d.answers.at(d.last).detail;
  for (const char* name : {"device: 8388608 of 8388608", "host: 8388608 of 8388608", "local: 16777216 of 16777216"})
    EXPECT_NE(detail.find(name), std::string::npos) << detail;
  for (Version i = 0; i < v; ++i) EXPECT_EQ(d.read(i), Reason::ok) << i;
}

TEST(Planner, WithATimeoutAnotherThreadMayConsume) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  const RequestId waiting = d.checkpoint(3, 4, 50'000'000);
  EXPECT_FALSE(d.answered(waiting));
  EXPECT_EQ(d.read(1), Reason::ok);
  d.run();
  EXPECT_EQ(d.reason(waiting), Reason::ok);
  const RequestId late = d.checkpoint(4, 4, 50'000'000);
  d.run();
  EXPECT_EQ(d.reason(late), Reason::no_space);
}

TEST(Planner, KeepAndRepeatedHintsDoNotConsume) {
  Driver d(machine_of(16, 16, 64));
  d.hint({1, 2, 1});
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_EQ(d.read(1, true), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok) << "keep, and one more hint names it";
  EXPECT_EQ(d.read(1), Reason::consumed);
  Driver e(machine_of(16, 16, 64));
  e.hint({1, 1});
  ASSERT_EQ(e.write(1, 4), Reason::ok);
  EXPECT_EQ(e.read(1), Reason::ok);
  EXPECT_EQ(e.read(1), Reason::ok);
  EXPECT_EQ(e.read(1), Reason::consumed);
}

TEST(Planner, PrefetchesInTheHintedOrderWhenTheProgramTurnsRound) {
  Driver d(machine_of(16, 16, 256));
  d.hint({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  for (Version v = 0; v < 12; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  const RequestId wait = d.wait_all(2);
  d.run();
  EXPECT_EQ(d.reason(wait), Reason::ok);
  EXPECT_EQ(d.planner.prefetch_distance(0), 4u) << "the next four wait on the device";
  const RequestId first = d.restore(0);
  EXPECT_EQ(d.answers.count(first), 0u);
  d.run();
  EXPECT_EQ(d.answers.at(first).found_on, 0);
  EXPECT_EQ(d.answers.at(first).distance, 3u);
  EXPECT_EQ(d.planner.prefetch_distance(0), 4u);
}

TEST(Planner, NothingLeavesWhileAllThatIsHintedFits) {
  const auto left = [](std::vector<Version> hints, Version writes, bool one_by_one = false) {
    Driver d(machine_of(16, 64, 0));
    if (!one_by_one) d.hint(std::move(hints));
    for (Version v = 0; v < writes; ++v) {
      if (one_by_one) d.tell(event::HintFront{v});
      EXPECT_EQ(d.write(v, 4), Reason::ok);
      d.run();
    }
    const Bytes bytes = d.by_link["device>host"];
    for (Version v = writes; v-- > 0;) EXPECT_EQ(d.read(v), Reason::ok);
    return bytes / kMiB;
  };
  EXPECT_EQ(left({3, 2, 1, 0}, 4), 0u);
  EXPECT_EQ(left({4, 3, 2, 1, 0}, 1), 4u) << "five do not fit: the first leaves at once";
  EXPECT_GT(left({1, 0}, 3), 0u) << "what is not hinted says that more may come";
  EXPECT_GT(left({}, 4, true), 0u) << "so does a program that hints as it writes";
}

TEST(Planner, PrefetchedCheckpointsThatAreNotAskedForMakeRoom) {
  Driver d(machine_of(8, 8, 256));
  d.hint({0, 1, 2, 3});
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  ASSERT_EQ(d.read(3), Reason::ok);
  d.run();
  for (Version v = 10; v < 40; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok) << v;
  for (Version v = 0; v < 3; ++v) EXPECT_EQ(d.read(v), Reason::ok);
  for (Version v = 10; v < 40; ++v) EXPECT_EQ(d.read(v), Reason::ok);
}

TEST(Planner, LargerThanTheFasterTiersGoesPastThem) {
  Driver d(machine_of(4, 8, 256));
  EXPECT_EQ(d.write(1, 6), Reason::ok);
  EXPECT_EQ(d.by_link["app>device"], 0u);
  EXPECT_EQ(d.write(2, 100), Reason::ok);
  EXPECT_GE(d.by_link["host>local"], 100 * kMiB);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Planner, ReservedAndBorrowedMemoryIsNeverTaken) {
  Driver d(machine_of(8, 8, 64));
  const RequestId a = d.reserve(1, 4), b = d.reserve(2, 4);
  ASSERT_EQ(d.reason(a), Reason::ok);
  ASSERT_EQ(d.reason(b), Reason::ok);
  const RequestId none = d.reserve(3, 4);
  EXPECT_EQ(d.reason(none), Reason::no_space);
  EXPECT_EQ(d.read(1), Reason::unknown_version) << "not committed yet";
  EXPECT_EQ(d.write(4, 4), Reason::ok) << "past the device";
  d.tell(event::Commit{a});
  d.tell(event::Abandon{b});
  EXPECT_EQ(d.read(2), Reason::unknown_version);
  const RequestId loan = d.borrow(1);
  ASSERT_EQ(d.reason(loan), Reason::ok);
  EXPECT_EQ(d.answers.at(loan).place.offset, d.answers.at(a).place.offset);
  for (Version v = 10; v < 20; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  EXPECT_EQ(d.planner.fastest_complete(*d.planner.find(0, 1)), 0);
  d.tell(event::Release{loan});
  EXPECT_EQ(d.read(1), Reason::consumed);
}

TEST(Planner, ARestoreOfWhatIsBeingWrittenFollowsItsChunks) {
  Driver d(machine_of(16, 16, 64, kMiB));
  const RequestId write = d.checkpoint(1, 4);
  const RequestId read = d.restore(1);
  EXPECT_FALSE(d.answered(read));
  d.finish();
  EXPECT_TRUE(std::any_of(d.under_way.begin(), d.under_way.end(), [&](const Command& c) { return c.request == read; }))
      << "the first chunk is read while the second is written";
  d.run();
  EXPECT_EQ(d.reason(write), Reason::ok);
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(Planner, ATransientFailureIsRetriedAPermanentOneReturnsToTheLastGoodState) {
  Driver d(machine_of(4, 0, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  for (int i = 0; i < 3 && !d.under_way.empty(); ++i) d.finish(0, true);
  d.run();
  EXPECT_EQ(d.planner.counters().retries, 3u);
  EXPECT_EQ(d.planner.use(TierIndex{1}).replicas, 1u) << "written below in spite of it";
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  while (!d.under_way.empty()) d.finish(0, true, true);
  EXPECT_EQ(d.planner.use(TierIndex{1}).replicas, 1u);
  EXPECT_EQ(d.planner.fastest_complete(*d.planner.find(0, 2)), 0);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Planner, WhenNothingCanBeFlushedTheNextCheckpointIsRefusedAndNothingIsLost) {
  Driver d(machine_of(8, 0, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  while (!d.under_way.empty()) d.finish(0, true, true);
  const RequestId id = d.checkpoint(3, 4);
  while (!d.under_way.empty()) d.finish(0, true, true);
  ASSERT_TRUE(d.answered(id));
  EXPECT_TRUE(d.reason(id) == Reason::no_space || d.reason(id) == Reason::lost) << name_of(d.reason(id));
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.read(2), Reason::ok);
}

TEST(Planner, ConsumedCheckpointsDropTheirPendingFlushes) {
  Driver d(machine_of(64, 64, 256));
  for (Version v = 0; v < 8; ++v) {
    const RequestId id = d.checkpoint(v, 4);
    while (!d.answered(id)) d.finish(d.under_way.size() - 1);
  }
  for (Version v = 7; v >= 0; --v) {
    const RequestId id = d.restore(v);
    while (!d.answered(id)) d.finish(d.under_way.size() - 1);
  }
  d.run();
  EXPECT_GT(d.planner.counters().dropped_flushes, 0u);
  EXPECT_LT(d.by_link["host>local"], 8 * 4 * kMiB);
}

TEST(Planner, DropEndsWaitersByName) {
  Driver d(machine_of(8, 0, 0));
  ASSERT_EQ(d.write(1, 8), Reason::ok);
  const RequestId id = d.checkpoint(2, 4, kNever);
  EXPECT_FALSE(d.answered(id));
  d.tell(event::Drop{2});
  EXPECT_EQ(d.reason(id), Reason::dropped);
  d.tell(event::DropAll{});
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(Planner, CancelledCallsAreAnsweredOnlyWhenTheirMemoryIsFree) {
  Driver d(machine_of(16, 16, 64, kMiB));
  const RequestId id = d.checkpoint(1, 4);
  d.tell(event::Cancel{id});
  EXPECT_FALSE(d.answered(id)) << "a copy reads the application's memory";
  d.run();
  EXPECT_EQ(d.reason(id), Reason::cancelled);
  EXPECT_EQ(d.read(1), Reason::unknown_version);
  EXPECT_EQ(d.write(1, 4), Reason::ok);
}

TEST(Planner, TheNameOfACancelledWriteIsFreeAtOnce) {
  Driver d(machine_of(16, 16, 64, kMiB));
  d.hint({1});
  const RequestId id = d.checkpoint(1, 4);
  d.tell(event::Cancel{id});
  EXPECT_FALSE(d.planner.find(0, 1)) << "copies of it have yet to report, but it will never be";
  EXPECT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_EQ(d.reason(id), Reason::cancelled);
  d.run();
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Planner, AClientThatGoesBackIsHintedAsItWrites) {
  Driver d(machine_of(16, 0, 0, kMiB));
  d.tell(event::Order{true});
  const RequestId given_up = d.checkpoint(9, 4);
  d.tell(event::Cancel{given_up});
  d.run();
  for (Version v = 0; v < 4; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  for (Version v = 4; v-- > 0;) {
    const RequestId read = d.restore(v);
    d.run();
    ASSERT_EQ(d.reason(read), Reason::ok);
    EXPECT_EQ(d.answers[read].distance, static_cast<std::uint32_t>(v)) << "those before it come next";
  }
  EXPECT_EQ(d.read(9), Reason::unknown_version);
  EXPECT_EQ(d.read(0), Reason::consumed);
  d.tell(event::DropAll{});
  EXPECT_TRUE(d.planner.idle(0)) << "no hint is left of the write that was given up";
}

TEST(Planner, AWriteThatWasGivenUpLeavesNoHintOfItsOwn) {
  Driver d(machine_of(16, 0, 0, kMiB));
  d.tell(event::Order{true});
  const RequestId given_up = d.checkpoint(9, 4);
  d.tell(event::Cancel{given_up});
  d.run();
  EXPECT_EQ(d.reason(given_up), Reason::cancelled);
  EXPECT_TRUE(d.planner.idle(0));
  ASSERT_EQ(d.write(9, 4), Reason::ok);
  EXPECT_EQ(d.read(9), Reason::ok);
  EXPECT_EQ(d.read(9), Reason::consumed) << "it was hinted once";
}

// On a link that carries it in less than a nanosecond.
TEST(Planner, AByteIsFlushedBeforeItMakesRoom) {
  Machine m = machine_of(1, 16, 0);
  for (LinkSpec& link : m.links) link.bytes_per_s = 8e9, link.latency = 0;
  Driver d(m);
  const RequestId byte = d.ask(event::Reserve{++d.last, 1, 1, kNever});
  const RequestId rest = d.reserve(2, 1, kNever);
  EXPECT_FALSE(d.answered(rest));
  d.tell(event::Commit{byte});
  d.run();
  EXPECT_EQ(d.reason(rest), Reason::ok);
  d.tell(event::Commit{rest});
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(Planner, ZeroBytesNeedNoRoom) {
  Driver d(machine_of(4, 0, 0));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_EQ(d.write(2, 0), Reason::ok);
  EXPECT_EQ(d.read(2, true), Reason::ok);
  EXPECT_EQ(d.read(2), Reason::ok);
  EXPECT_EQ(d.read(2), Reason::consumed);
}

TEST(Planner, AStoreThatKeepsStaysRestorable) {
  Machine m = machine_of(8, 8, 256);
  m.ephemeral = false;
  Driver d(m);
  for (Version v = 0; v < 20; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  for (Version v = 0; v < 20; ++v) ASSERT_EQ(d.read(v), Reason::ok);
  d.run();
  for (Version v = 0; v < 20; ++v) ASSERT_EQ(d.read(v), Reason::ok);
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{2}).replicas, 20u);
}

TEST(Planner, EventTimesNeverGoBackAndCommandsAreReportedOnce) {
  Driver d(machine_of(8, 8, 64));
  d.checkpoint(1, 4);
  const CommandId id = d.under_way.front().id;
  d.finish();
  EXPECT_THROW(d.tell(event::Finished{id}), std::logic_error);
  Event early;
  early.now = 0;
  Output out;
  EXPECT_THROW(d.planner.on(early, out), std::logic_error);
}

}  // namespace
}  // namespace ebb::planner
