// Stores that keep their checkpoints: what is in the file already, what gets there, and what leaves it.
#include <chrono>
#include <stdexcept>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr TierIndex kFile = 2;

Machine kept(Bytes device, Bytes host, Bytes local, Bytes chunk = 4 * kMiB) {
  Machine m = machine_of(device, host, local, chunk);
  m.ephemeral = false;
  return m;
}

bool in_file(const Driver& d, Version v) {
  const auto found = d.planner.find(0, v);
  return found && d.planner.lowest_complete(*found) == static_cast<TierIndex>(d.planner.machine().tiers.size() - 1);
}

TEST(PlannerKept, WhatIsAdoptedIsThereAndSafe) {
  Driver d(kept(16, 16, 64));
  d.adopt(3, 4);
  d.adopt(4, 0);
  EXPECT_TRUE(in_file(d, 3));
  EXPECT_TRUE(in_file(d, 4));
  EXPECT_EQ(d.planner.use(kFile).used, 4 * kMiB);
  EXPECT_EQ(d.planner.use(kFile).replicas, 2u);
  EXPECT_TRUE(d.under_way.empty());
  EXPECT_EQ(d.write(3, 4), Reason::version_exists);
  EXPECT_EQ(d.reason(d.wait_all(kFile)), Reason::ok) << "nothing has to be flushed";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(d.read(3), Reason::ok);
    EXPECT_EQ(d.read(4), Reason::ok);
  }
  EXPECT_EQ(d.by_link["host>local"], 0u);
}

TEST(PlannerKept, WhatWasHintedBeforeIsPrefetchedOnceAdopted) {
  Driver d(kept(16, 16, 64));
  d.hint({1, 2, 1});
  d.adopt(1, 4);
  d.adopt(2, 4);
  d.tell(event::StartPrefetch{});
  d.run();
  EXPECT_EQ(d.planner.prefetch_distance(0), 3u);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(PlannerKept, AdoptingWhatCannotBeIsABrokenContract) {
  Driver d(kept(16, 16, 64));
  d.adopt(1, 4);
  EXPECT_THROW(d.adopt(1, 4), std::logic_error);
  Driver none(kept(16, 16, 0));
  EXPECT_THROW(none.adopt(1, 4), std::logic_error);
}

TEST(PlannerKept, AboveItsCapacityTheFileTakesNothingUntilDropsMadeRoom) {
  Driver d(kept(4, 0, 8));
  for (Version v = 0; v < 4; ++v) d.adopt(v, 4);
  EXPECT_EQ(d.planner.use(TierIndex{1}).used, 16 * kMiB);
  EXPECT_EQ(d.planner.use(TierIndex{1}).largest_gap, 0u);
  EXPECT_EQ(d.write(10, 4), Reason::ok) << "on the device";
  EXPECT_EQ(d.write(11, 4), Reason::no_space);
  const RequestId waiting = d.checkpoint(12, 4, kNever);
  const RequestId durable = d.wait(10, 1);
  EXPECT_FALSE(d.answered(waiting));
  EXPECT_EQ(d.reason(durable), Reason::no_space);
  d.tell(event::Drop{0});
  d.tell(event::Drop{1});
  d.run();
  EXPECT_FALSE(d.answered(waiting)) << "16 MiB of 8 were used, now 8";
  EXPECT_FALSE(in_file(d, 10));
  d.tell(event::Drop{2});
  d.run();
  EXPECT_EQ(d.reason(waiting), Reason::ok);
  EXPECT_NE(in_file(d, 10), in_file(d, 12)) << "room for one";
  d.tell(event::Drop{3});
  d.run();
  EXPECT_TRUE(in_file(d, 10) && in_file(d, 12));
}

TEST(PlannerKept, AHundredThousandAreAdoptedInNoTime) {
  Planner planner(kept(16, 16, 64));
  Output out;
  const auto start = std::chrono::steady_clock::now();
  for (Version v = 0; v < 100'000; ++v) {
    out.clear();
    planner.on({.what = event::Recovered{v, 64 << 10, first_keeping(planner.machine())}}, out);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(took));
  EXPECT_LT(took, 5.0) << "each takes longer the more there are";
  EXPECT_EQ(planner.use(kFile).replicas, 100'000u);
  planner.check();
}

TEST(PlannerKept, WhatHoldsNoBytesIsInTheFileWithItsAnswerAndLeavesItByADrop) {
  Driver d(kept(16, 16, 64));
  ASSERT_EQ(d.reason(d.checkpoint(1, 0)), Reason::ok);
  const RequestId held = d.reserve(2, 0);
  ASSERT_EQ(d.reason(held), Reason::ok);
  EXPECT_FALSE(in_file(d, 2));
  d.tell(event::Commit{held});
  for (Version v : {1, 2}) {
    EXPECT_TRUE(in_file(d, v));
    EXPECT_EQ(d.read(v), Reason::ok);
    EXPECT_EQ(d.reason(d.wait(v, kFile)), Reason::ok);
    const CheckpointRef ref = *d.planner.find(0, v);
    EXPECT_TRUE(d.freed.empty());
    d.tell(event::Drop{v});
    ASSERT_EQ(d.freed.size(), 1u);
    EXPECT_EQ(d.freed[0].tier, kFile);
    EXPECT_EQ(d.freed[0].checkpoint, ref);
    EXPECT_EQ(d.freed[0].length, 0u);
    EXPECT_FALSE(d.freed[0].failed);
    d.freed.clear();
  }
  EXPECT_EQ(d.by_link["host>local"], 0u);
}

// Ends what is under way until a call is answered; reads of the file fail.
void fail_reads(Driver& d, RequestId call, bool hopeless) {
  for (int i = 0; !d.answered(call) && !d.under_way.empty() && i < 1000; ++i) {
    const Endpoint from = d.under_way.front().from.at;
    const bool file =
        from.kind == Endpoint::tier && from.index == static_cast<TierIndex>(d.planner.machine().tiers.size() - 1);
    d.finish(0, file, false, file && hopeless);
  }
}

TEST(PlannerKept, WhatCannotBeReadIsGivenUpAndItsNameIsFree) {
  for (const bool hopeless : {false, true}) {
    Driver d(kept(16, 16, 64));
    d.adopt(1, 4);
    const CheckpointRef ref = *d.planner.find(0, 1);
    const RequestId read = d.restore(1);
    fail_reads(d, read, hopeless);
    EXPECT_EQ(d.reason(read), Reason::lost);
    EXPECT_EQ(d.planner.counters().retries, hopeless ? 0u : 3u);
    ASSERT_EQ(d.freed.size(), 1u);
    EXPECT_TRUE(d.freed[0].failed);
    EXPECT_EQ(d.freed[0].checkpoint, ref);
    ASSERT_EQ(d.failures.size(), 1u);
    EXPECT_TRUE(d.failures[0].lost);
    EXPECT_EQ(d.failures[0].checkpoint, ref);
    EXPECT_EQ(d.read(1), Reason::unknown_version);
    EXPECT_EQ(d.planner.use(kFile).used, 0u);
    EXPECT_EQ(d.write(1, 4), Reason::ok);
    d.run();
    EXPECT_TRUE(in_file(d, 1));
    EXPECT_EQ(d.read(1), Reason::ok);
  }
}

// Ends what is under way; copies out of the device's memory find that it was written to since.
void find_altered(Driver& d) {
  for (int i = 0; !d.under_way.empty() && i < 1000; ++i) {
    const bool altered = d.under_way.front().from.at == Endpoint{Endpoint::tier, 0};
    d.finish(0, altered, false, altered);
  }
}

TEST(PlannerKept, WhatWasWrittenToInMemoryIsGivenUpByItsFlush) {
  for (const bool ephemeral : {false, true}) {
    Machine m = kept(16, 16, 64);
    m.ephemeral = ephemeral;
    Driver d(m);
    ASSERT_EQ(d.write(1, 4), Reason::ok);
    const CheckpointRef ref = *d.planner.find(0, 1);
    const RequestId wait = d.wait(1, 1);
    find_altered(d);
    EXPECT_TRUE(d.answered(wait));
    ASSERT_FALSE(d.failures.empty());
    EXPECT_TRUE(d.failures.back().lost);
    EXPECT_EQ(d.failures.back().checkpoint, ref);
    EXPECT_EQ(d.planner.counters().retries, 0u);
    EXPECT_EQ(d.read(1), Reason::unknown_version);
    for (TierIndex t = 0; t <= kFile; ++t) EXPECT_EQ(d.planner.use(t).used, 0u);
    EXPECT_EQ(d.write(1, 4), Reason::ok);
    EXPECT_EQ(d.read(1), Reason::ok);
  }
}

TEST(PlannerKept, WhatWasWrittenToInMemoryIsReadFromBelow) {
  Driver d(kept(16, 16, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  d.run();
  ASSERT_TRUE(in_file(d, 1));
  ASSERT_EQ(d.planner.fastest_complete(*d.planner.find(0, 1)), 0);
  const RequestId read = d.restore(1, true);
  find_altered(d);
  EXPECT_EQ(d.reason(read), Reason::ok);
  EXPECT_TRUE(d.failures.empty());
  EXPECT_NE(d.planner.fastest_complete(*d.planner.find(0, 1)), 0);
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(PlannerKept, TwoReadersOfWhatCannotBeReadAreBothToldAndTheFileIsLeftAloneOnce) {
  Driver d(kept(16, 16, 64, kMiB));
  d.hint({1});
  d.adopt(1, 4);
  const RequestId a = d.restore(1), b = d.restore(1), c = d.borrow(1);
  for (const RequestId id : {a, b, c}) fail_reads(d, id, true);
  d.run();
  for (const RequestId id : {a, b, c}) EXPECT_EQ(d.reason(id), Reason::lost);
  int file = 0;
  for (const Freed& f : d.freed) file += f.tier == kFile && f.failed;
  EXPECT_EQ(file, 1);
}

TEST(PlannerKept, ADropOfWhatFailsToBeReadIsADrop) {
  Driver d(kept(16, 16, 64, kMiB));
  d.adopt(1, 4);
  const RequestId read = d.restore(1);
  d.tell(event::Drop{1});
  fail_reads(d, read, true);
  ASSERT_TRUE(d.answered(read));
  ASSERT_EQ(d.freed.size(), 1u);
  EXPECT_FALSE(d.freed[0].failed);
}

TEST(PlannerKept, ADropOfWhatHasFailedToBeReadIsADropToo) {
  Driver d(kept(0, 16, 64, kMiB));
  d.adopt(1, 4);
  const RequestId read = d.restore(1), loan = d.borrow(1);
  const auto of_read = [&] {
    return std::find_if(d.under_way.begin(), d.under_way.end(),
                        [](const Command& c) { return c.to.at.kind == Endpoint::ring; });
  };
  ASSERT_NE(of_read(), d.under_way.end());
  while (of_read() != d.under_way.end())
    d.finish(static_cast<std::size_t>(of_read() - d.under_way.begin()), true, false, true);
  ASSERT_FALSE(d.answered(loan));
  ASSERT_TRUE(d.failures.empty()) << "the borrow's copy may still come";
  d.tell(event::Drop{1});
  d.run();
  ASSERT_TRUE(d.answered(read));
  int file = 0;
  for (const Freed& f : d.freed) {
    if (f.tier != 1) continue;
    ++file;
    EXPECT_FALSE(f.failed);
  }
  EXPECT_EQ(file, 1);
}

TEST(PlannerKept, AnEphemeralStoreTriesAgainAsEver) {
  Machine m = machine_of(0, 0, 64);
  Driver d(m);
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  const RequestId read = d.restore(1);
  fail_reads(d, read, true);
  EXPECT_EQ(d.reason(read), Reason::lost);
  EXPECT_TRUE(d.freed.empty());
  EXPECT_EQ(d.read(1), Reason::ok);
}

TEST(PlannerKept, OldestFirstWhenNothingIsHintedAndConsumedOnesToo) {
  Driver d(kept(0, 64, 256));
  for (Version v = 0; v < 8; ++v) {
    const RequestId id = d.checkpoint(v, 4);
    while (!d.answered(id)) {  // only the calls' copies: the disk is held
      std::size_t i = 0;
      while (d.under_way[i].to.at == Endpoint{Endpoint::tier, 1}) ++i;
      d.finish(i);
    }
  }
  for (Version v = 7; v >= 4; --v) {
    const RequestId id = d.restore(v);
    while (!d.answered(id)) d.finish(d.under_way.size() - 1);
  }
  EXPECT_TRUE(std::any_of(d.under_way.begin(), d.under_way.end(), [](const Command& c) { return c.to.at.index == 1; }))
      << "the disk is kept busy while the program reads";
  const RequestId all = d.wait_all(1);
  Version next = 0;
  for (int i = 0; i < 100 && !d.under_way.empty(); ++i) {
    d.finish();
    while (next < 8 && in_file(d, next)) ++next;
    for (Version v = next; v < 8; ++v) EXPECT_FALSE(in_file(d, v)) << v << " before " << next;
    EXPECT_EQ(d.answered(all), next == 8);
  }
  EXPECT_EQ(d.reason(all), Reason::ok);
  EXPECT_EQ(d.read(7), Reason::ok);
}

// Who waits for it asks now: a program that closes its store must not lose what a disk could take again.
TEST(PlannerKept, AWaitTriesAtOnceWhatFailedBefore) {
  Driver d(kept(0, 16, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  while (!d.under_way.empty()) d.finish(0, true, true);
  ASSERT_EQ(d.failures.size(), 1u);
  const RequestId failing = d.wait(1, 1);
  ASSERT_FALSE(d.under_way.empty());
  while (!d.under_way.empty()) d.finish(0, true, true);
  EXPECT_EQ(d.reason(failing), Reason::lost) << "and says so when it fails again";
  const RequestId all = d.wait_all(1);
  ASSERT_FALSE(d.under_way.empty());
  while (!d.under_way.empty()) d.finish();
  EXPECT_EQ(d.reason(all), Reason::ok);
  EXPECT_TRUE(in_file(d, 1));
}

// A call that changes nothing must not make the planner forget when it wanted to be woken.
TEST(PlannerKept, AFlushThatFailedIsTriedAgainWhateverIsAskedMeanwhile) {
  Driver d(kept(0, 16, 64));
  ASSERT_EQ(d.write(1, 4), Reason::ok);
  while (!d.under_way.empty()) d.finish(0, true, true);
  ASSERT_EQ(d.failures.size(), 1u);
  EXPECT_FALSE(d.failures[0].lost);
  ASSERT_EQ(d.reason(d.checkpoint(1, 4)), Reason::version_exists);
  d.run();
  EXPECT_TRUE(in_file(d, 1));
}

TEST(PlannerKept, WhatTheFileCannotTakeDoesNotHoldUpTheOthers) {
  Driver d(kept(0, 64, 16));
  ASSERT_EQ(d.write(0, 20), Reason::ok);
  for (Version v = 1; v < 3; ++v) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.run();
  EXPECT_TRUE(in_file(d, 1));
  EXPECT_TRUE(in_file(d, 2));
  EXPECT_EQ(d.read(0), Reason::ok);
}

TEST(PlannerKept, ABorrowTriesTheFileOnceMoreBeforeItIsRefused) {
  Driver d(kept(8, 0, 64));
  d.adopt(1, 4);
  for (Version v : {2, 3}) {
    d.checkpoint(v, 4);
    d.finish(d.under_way.size() - 1);
  }
  const auto fail = [&] {
    while (!d.under_way.empty()) d.finish(0, true, true);
  };
  fail();
  const RequestId refused = d.borrow(1);
  ASSERT_FALSE(d.under_way.empty()) << "the flushes that failed are not tried again";
  fail();
  EXPECT_EQ(d.reason(refused), Reason::no_space);
  const RequestId granted = d.borrow(1);
  for (int i = 0; !d.answered(granted) && i < 100; ++i) d.step();
  EXPECT_EQ(d.reason(granted), Reason::ok) << "the file had room";
}

}  // namespace
}  // namespace ebb::planner
