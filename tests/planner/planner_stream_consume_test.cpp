// What a restore in stream order consumes when it returns, while the checkpoint itself is still on a stream.
#include <random>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

// Version 1 and a restore of it that has returned, both on a stream that is held.
struct ReturnedEarly : ::testing::Test {
  ReturnedEarly() : d(machine_of(16, 16, 0)) {
    write = d.checkpoint(1, 4, 0, true);
    read = d.restore(1, false, true);
    EXPECT_EQ(d.under_way.size(), 2u);
    d.submit(read);
  }
  Driver d;
  RequestId write = 0, read = 0;
};

TEST_F(ReturnedEarly, ARestoreConsumesWhatIsStillOnItsStream) {
  EXPECT_FALSE(d.planner.find(0, 1));
  EXPECT_EQ(d.reason(d.restore(1)), Reason::consumed);
  EXPECT_EQ(d.reason(d.borrow(1)), Reason::consumed);
  EXPECT_EQ(d.reason(d.wait(1, 0)), Reason::consumed);
  d.run();
  EXPECT_EQ(d.reason(write), Reason::ok) << "it was written";
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(ReturnedEarly, TheReadMayBeReportedBeforeTheWrite) {
  d.finish(1);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 4 * kMiB) << "a copy still writes it";
  d.run();
  EXPECT_EQ(d.reason(write), Reason::ok);
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(ReturnedEarly, ItsNameCanBeWrittenAgainAtOnce) {
  const RequestId again = d.checkpoint(1, 4, 0, true);
  ASSERT_EQ(d.under_way.size(), 3u);
  EXPECT_NE(d.under_way[2].to.offset, d.under_way[0].to.offset) << "the first is still there";
  const RequestId back = d.restore(1, false, true);
  EXPECT_EQ(d.under_way[3].after, d.under_way[2].id);
  EXPECT_EQ(d.under_way[3].from.offset, d.under_way[2].to.offset);
  d.finish(2);  // whatever ends first
  d.run();
  EXPECT_EQ(d.reason(again), Reason::ok);
  EXPECT_EQ(d.reason(back), Reason::ok);
}

TEST(StreamConsume, ANameCanBeWrittenAgainWhereThereIsRoomForOneAlone) {
  Driver d(machine_of(4, 0, 0));
  for (int i = 0; i < 5; ++i) {
    const RequestId write = d.checkpoint(1, 4, 0, true);
    ASSERT_FALSE(d.answered(write)) << "it waits for room, and is not refused";
    while (d.under_way.back().request != write) d.finish();
    d.submit(d.restore(1, false, true));
  }
  d.run();
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST(StreamConsume, WhoBeganToReadItGoesOn) {
  Driver d(machine_of(16, 16, 0));
  d.checkpoint(1, 4, 0, true);
  const RequestId slow = d.restore(1), loan = d.borrow(1);
  d.submit(d.restore(1, false, true));
  d.run();
  EXPECT_EQ(d.reason(slow), Reason::ok);
  EXPECT_EQ(d.reason(loan), Reason::ok);
  d.tell(event::Release{loan});
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(ReturnedEarly, AWriteThatFailsIsLostThoughItWasConsumed) {
  d.finish(0, true);
  EXPECT_EQ(d.reason(write), Reason::lost);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_TRUE(d.failures[0].lost);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::lost);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
  EXPECT_EQ(d.write(1, 4), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST_F(ReturnedEarly, AWriteThatFailsSaysNothingOfWhoBearsItsNameByThen) {
  const RequestId again = d.checkpoint(1, 4, 0, true);
  d.finish(0, true);
  EXPECT_EQ(d.reason(write), Reason::dropped);
  EXPECT_TRUE(d.failures.empty());
  d.run();
  EXPECT_EQ(d.reason(again), Reason::ok);
  EXPECT_EQ(d.read(1), Reason::ok);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

TEST_F(ReturnedEarly, AWriteThatFailsAfterADropIsDropped) {
  d.tell(event::Drop{1});
  d.finish(0, true);
  EXPECT_EQ(d.reason(write), Reason::dropped);
  EXPECT_TRUE(d.failures.empty());
  d.run();
  EXPECT_EQ(d.read(1), Reason::unknown_version);
}

TEST(StreamConsume, WhatIsToBeKeptStaysThoughItsWriteIsStillOnItsStream) {
  for (const bool ephemeral : {true, false}) {
    Machine m = machine_of(16, 16, 64);
    m.ephemeral = ephemeral;
    Driver d(m);
    d.checkpoint(1, 4, 0, true);
    d.submit(d.restore(1, ephemeral, true));
    EXPECT_TRUE(d.planner.find(0, 1));
    EXPECT_EQ(d.reason(d.checkpoint(1, 4, 0, true)), Reason::version_exists);
    d.run();
    EXPECT_EQ(d.read(1), Reason::ok);
  }
}

TEST(StreamConsume, ADropUnderARestoreThatHasReturnedEndsWithItsCopies) {
  Driver d(machine_of(16, 16, 0));
  const RequestId write = d.checkpoint(1, 8, 0, true);  // two chunks
  d.submit(d.restore(1, true, true));
  d.tell(event::Drop{1});
  d.finish(1);  // in any order
  d.run();
  EXPECT_EQ(d.reason(write), Reason::dropped);
  EXPECT_EQ(d.planner.use(TierIndex{0}).used, 0u);
}

// Whether a hint names it is asked when the call returns, and then no more.
TEST(StreamConsume, AHintThatIsUsedLaterKeepsIt) {
  for (const bool late : {false, true}) {
    Driver d(machine_of(16, 16, 0));
    d.hint({1, 1});
    d.checkpoint(1, 4, 0, true);
    const RequestId first = d.restore(1, false, true);
    d.submit(first);
    if (!late) d.run();
    const RequestId second = d.restore(1, true);
    d.run();
    EXPECT_EQ(d.reason(second), Reason::ok);
    EXPECT_EQ(d.read(1), Reason::ok) << "it was to be kept";
  }
}

// One program, its copies ending in any order, or at once: what its calls find is the same.
TEST(StreamConsume, WhatCallsFindDoesNotDependOnWhenTheirCopiesEnd) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Driver d(machine_of(4 + random() % 16, 64, 0, random() % 2 ? kMiB : 64 * kMiB));
    std::map<Version, std::size_t> there;  // and how many hints name it
    const std::uint64_t quick = random() % 8;
    for (int step = 0; step < 150; ++step) {
      const Version v = static_cast<Version>(random() % 4);
      const bool write = random() % 2, keep = random() % 4 == 0;
      if (random() % 10 == 0) d.tell(event::Drop{v}), there.erase(v);
      if (random() % 6 == 0 && there.contains(v)) d.hint({v}), ++there[v];
      if (random() % 12 == 0) {
        d.tell(event::UnhintAll{});
        for (auto& [one, hints] : there) hints = 0;
      }
      const Bytes bytes = static_cast<Bytes>(1 + v) * kMiB;
      const RequestId id = d.last + 1;
      Bytes sent = 0;
      const auto count = [&] {
        for (const Command& c : d.out.commands) sent += c.request == id ? c.length : 0;
      };
      const bool found = there.contains(v);
      if (write)
        d.checkpoint(v, bytes / kMiB, kNever, true);
      else
        d.restore(v, keep, true);
      count();
      while (!d.answered(id) && sent < bytes) {
        ASSERT_FALSE(d.under_way.empty() && d.wakeup == kNever) << "it is stuck";
        d.under_way.empty() ? d.step() : d.finish(random() % d.under_way.size());
        count();
      }
      const bool refused = d.answered(id) && d.reason(id) != Reason::ok;
      EXPECT_EQ(refused, write == found);
      EXPECT_EQ(d.planner.find(0, v).has_value(), write || found) << "version " << v;
      if (write && !found) there[v] = 0;
      if (!write && found) {
        if (!d.answered(id)) d.submit(id);
        if (there[v] > 0) --there[v];
        if (there[v] == 0 && !keep) there.erase(v);
        EXPECT_EQ(d.planner.find(0, v).has_value(), there.contains(v)) << "version " << v;
      }
      for (std::uint64_t i = random() % (1 + quick); i > 0 && !d.under_way.empty(); --i)
        d.finish(random() % d.under_way.size());
      if (testing::Test::HasFailure()) return;
    }
    d.run();
    for (Version v = 0; v < 4; ++v) EXPECT_EQ(d.planner.find(0, v).has_value(), there.contains(v)) << "version " << v;
    d.tell(event::DropAll{});
    for (TierIndex t = 0; t < static_cast<TierIndex>(d.planner.machine().tiers.size()); ++t)
      EXPECT_EQ(d.planner.use(t).used, 0u);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ebb::planner
