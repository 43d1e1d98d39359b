// What the plan commands, event by event: forced races, order, the buffer, several cuts, failures.
#include "planner/snapshot_plan.hpp"

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

namespace ebb::planner {
namespace {

using E = SnapshotEvent;
using C = SnapshotCommand;

std::string text_of(const SnapshotCommands& commands) {
  std::string text;
  for (const C& c : commands.list) {
    const std::string zone = std::to_string(c.zone), cut = std::to_string(c.cut), slot = std::to_string(c.slot);
    const std::string place = " " + zone + ">" + slot + "." + std::to_string(c.place);
    if (!text.empty()) text += ", ";
    switch (c.kind) {
      case C::answer: text += "answer " + zone; break;
      case C::wait: text += "wait " + zone; break;
      case C::duplicate: text += "duplicate" + place; break;
      case C::copy: text += "copy" + place; break;
      case C::begun: text += "begun " + cut + ":" + std::to_string(c.count); break;
      case C::drain: text += "drain " + slot + ":" + std::to_string(c.count); break;
      case C::copied: text += "copied " + cut; break;
      case C::drained: text += "drained " + cut; break;
      case C::failed: text += "failed " + cut; break;
    }
  }
  return text;
}

SnapshotSpec spec_of(std::uint32_t slots, std::uint32_t slot_zones, std::uint32_t copies = 1) {
  return {.slots = slots, .slot_zones = slot_zones, .reserve = 0, .copies = copies, .longest_wait = 1000};
}

// A plan whose zones are clean, after a first cut.
struct Rig {
  SnapshotPlan plan;
  Time now = 0;

  explicit Rig(const SnapshotSpec& spec, ZoneIndex zones = 8) : plan(spec) {
    plan.on({.kind = E::protect, .count = zones});
    std::vector<C> to_do;
    const auto take = [&](SnapshotCommands c) {
      for (;; c = plan.on({})) {
        to_do.insert(to_do.end(), c.list.begin(), c.list.end());
        if (!c.more) break;
      }
    };
    take(plan.on({.kind = E::cut}));
    for (std::size_t i = 0; i < to_do.size(); ++i) {
      const C c = to_do[i];
      if (c.kind == C::copy) take(plan.on({.kind = E::copied, .zone = c.zone, .slot = c.slot, .bytes = 1}));
      if (c.kind == C::drain) take(plan.on({.kind = E::drained, .slot = c.slot}));
    }
    EXPECT_FALSE(plan.in_flight());
  }

  std::string on(E event) {
    event.now = now;
    return text_of(plan.on(event));
  }
  std::string fault(ZoneIndex zone) { return on({.kind = E::fault, .zone = zone}); }
  std::string cut() { return on({.kind = E::cut}); }
  std::string full_cut() { return on({.kind = E::full_cut}); }
  std::string copied(ZoneIndex zone, std::uint32_t slot) {
    return on({.kind = E::copied, .zone = zone, .slot = slot, .bytes = 1});
  }
  std::string drained(std::uint32_t slot) { return on({.kind = E::drained, .slot = slot}); }
  std::string tick() { return on({}); }
  void write(std::initializer_list<ZoneIndex> zones) {
    for (ZoneIndex z : zones) EXPECT_EQ(fault(z), "answer " + std::to_string(z));
  }
};

TEST(SnapshotPlan, AFirstWriteIsAnsweredAndTheNextCutIsOwedIt) {
  Rig rig(spec_of(2, 4));
  rig.write({3});
  rig.write({3});  // a fault may come twice
  EXPECT_EQ(rig.plan.counters().dirty, 1u);
  EXPECT_EQ(rig.cut(), "begun 2:1, copy 3>0.0");
  EXPECT_EQ(rig.copied(3, 0), "copied 2, drain 0:1");
  EXPECT_EQ(rig.drained(0), "drained 2");
  EXPECT_EQ(rig.cut(), "begun 3:0, copied 3, drained 3");
}

TEST(SnapshotPlan, AWriteBetweenProtectAndCopyIsDuplicatedFirst) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2, 5});
  EXPECT_EQ(rig.cut(), "begun 2:3, copy 1>0.0");
  EXPECT_EQ(rig.fault(5), "duplicate 5>0.1");
  EXPECT_EQ(rig.copied(5, 0), "answer 5");
  EXPECT_EQ(rig.plan.state(5), ZoneState::duplicated);
  EXPECT_EQ(rig.fault(5), "answer 5");  // late
  EXPECT_EQ(rig.copied(1, 0), "copy 2>0.2");
  EXPECT_EQ(rig.copied(2, 0), "copied 2, drain 0:3");
  EXPECT_EQ(rig.drained(0), "drained 2");
  EXPECT_EQ(rig.cut(), "begun 3:1, copy 5>0.0") << "dirty for the next one as well";
}

TEST(SnapshotPlan, ASecondWriteWhileDuplicatingWaitsForTheSameCopy) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2});
  rig.cut();
  EXPECT_EQ(rig.fault(2), "duplicate 2>0.1");
  EXPECT_EQ(rig.fault(2), "wait 2");
  EXPECT_EQ(rig.copied(2, 0), "answer 2");
  EXPECT_EQ(rig.plan.counters().duplicates, 1u);
  EXPECT_EQ(rig.plan.counters().waits, 1u);
}

TEST(SnapshotPlan, AWriteToAZoneThatIsBeingCopiedWaitsForThatCopy) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2});
  rig.cut();
  EXPECT_EQ(rig.fault(1), "wait 1");
  EXPECT_EQ(rig.copied(1, 0), "answer 1, copy 2>0.1");
  EXPECT_EQ(rig.plan.state(1), ZoneState::duplicated);
  EXPECT_EQ(rig.plan.counters().duplicates, 0u);
}

TEST(SnapshotPlan, ZonesAreCopiedAsTheLastIntervalWroteThemFirst) {
  Rig rig(spec_of(1, 8));
  rig.write({6, 0, 7, 3});
  rig.write({0});
  EXPECT_EQ(rig.full_cut(), "begun 2:8, copy 6>0.0");
  EXPECT_EQ(rig.copied(6, 0), "copy 0>0.1");
  EXPECT_EQ(rig.copied(0, 0), "copy 7>0.2");
  EXPECT_EQ(rig.copied(7, 0), "copy 3>0.3");
  EXPECT_EQ(rig.copied(3, 0), "copy 1>0.4") << "then what it did not write";
}

TEST(SnapshotPlan, WhatIsDuplicatedIsTheFirstInTheOrderOfItsInterval) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2});
  rig.cut();
  EXPECT_EQ(rig.fault(2), "duplicate 2>0.1");
  rig.copied(2, 0);
  rig.copied(1, 0);
  rig.write({1});
  rig.drained(0);
  EXPECT_EQ(rig.cut(), "begun 3:2, copy 2>0.0");
}

TEST(SnapshotPlan, WithoutDuplicatesAFaultedZoneIsCopiedNext) {
  SnapshotSpec spec = spec_of(2, 4);
  spec.duplicate = false;
  Rig rig(spec);
  rig.write({1, 2, 3, 4});
  EXPECT_EQ(rig.cut(), "begun 2:4, copy 1>0.0");
  EXPECT_EQ(rig.fault(4), "wait 4");
  EXPECT_EQ(rig.fault(3), "wait 3");
  EXPECT_EQ(rig.copied(1, 0), "copy 4>0.1") << "first come, first served";
  EXPECT_EQ(rig.copied(4, 0), "answer 4, copy 3>0.2");
  EXPECT_EQ(rig.copied(3, 0), "answer 3, copy 2>0.3");
  EXPECT_EQ(rig.plan.counters().duplicates, 0u);
}

TEST(SnapshotPlan, WithoutHintsNothingIsFreeUntilAllIsCopied) {
  SnapshotSpec spec = spec_of(2, 4);
  spec.duplicate = spec.hints = false;
  Rig rig(spec);
  rig.write({1, 2});
  rig.cut();
  EXPECT_EQ(rig.fault(1), "wait 1");
  EXPECT_EQ(rig.copied(1, 0), "copy 2>0.1");
  EXPECT_EQ(rig.fault(2), "wait 2");
  EXPECT_EQ(rig.copied(2, 0), "copied 2, answer 1, answer 2, drain 0:2");
  EXPECT_EQ(rig.plan.counters().dirty, 2u);
}

TEST(SnapshotPlan, WithDuplicatesButNoHintsWhatIsDuplicatedIsFree) {
  SnapshotSpec spec = spec_of(2, 4);
  spec.hints = false;
  Rig rig(spec);
  rig.write({1, 2, 3});
  rig.cut();
  EXPECT_EQ(rig.fault(3), "duplicate 3>0.1");
  EXPECT_EQ(rig.copied(3, 0), "answer 3");
  EXPECT_EQ(rig.copied(1, 0), "copy 2>0.2");
  EXPECT_EQ(rig.fault(1), "wait 1");
  EXPECT_EQ(rig.copied(2, 0), "copied 2, answer 1, drain 0:3");
}

TEST(SnapshotPlan, OneSlotDrainsWhileTheOtherIsFilled) {
  Rig rig(spec_of(2, 2));
  rig.write({0, 1, 2, 3, 4});
  rig.cut();
  EXPECT_EQ(rig.copied(0, 0), "copy 1>0.1");
  EXPECT_EQ(rig.copied(1, 0), "copy 2>1.0, drain 0:2");
  EXPECT_EQ(rig.copied(2, 1), "copy 3>1.1");
  EXPECT_EQ(rig.copied(3, 1), "drain 1:2");
  EXPECT_EQ(rig.drained(0), "copy 4>0.0");
  EXPECT_EQ(rig.copied(4, 0), "copied 2, drain 0:1");
  EXPECT_EQ(rig.drained(0), "");
  EXPECT_EQ(rig.drained(1), "drained 2");
}

TEST(SnapshotPlan, AFullBufferBlocksAWriteUntilASlotHasDrained) {
  Rig rig(spec_of(2, 2));
  rig.write({0, 1, 2, 3, 4, 5});
  rig.cut();
  rig.copied(0, 0);
  rig.copied(1, 0);
  rig.copied(2, 1);
  rig.copied(3, 1);
  EXPECT_EQ(rig.fault(5), "wait 5");
  EXPECT_EQ(rig.fault(5), "wait 5");
  rig.now = 400;
  EXPECT_EQ(rig.drained(1), "duplicate 5>1.0, copy 4>1.1");
  rig.now = 450;
  EXPECT_EQ(rig.copied(5, 1), "answer 5");
  EXPECT_EQ(rig.plan.counters().blocked, 450);
}

TEST(SnapshotPlan, AWriteWaitsAsLongAsIsSaidAndThenTheSnapshotFailsAndNoneWaits) {
  Rig rig(spec_of(1, 2));
  rig.write({0, 1, 2, 3});
  rig.cut();
  rig.copied(0, 0);
  EXPECT_EQ(rig.copied(1, 0), "drain 0:2");
  rig.now = 10;
  EXPECT_EQ(rig.fault(3), "wait 3");
  rig.now = 20;
  const SnapshotCommands second = rig.plan.on({.kind = E::fault, .now = 20, .zone = 2});
  EXPECT_EQ(text_of(second), "wait 2");
  EXPECT_EQ(second.wakeup, 1010);
  rig.now = 1009;
  EXPECT_EQ(rig.tick(), "");
  rig.now = 1010;
  const SnapshotCommands over = rig.plan.on({.now = 1010});
  EXPECT_EQ(text_of(over), "failed 2");
  EXPECT_EQ(over.list[0].trouble, SnapshotTrouble::waited_too_long);
  EXPECT_EQ(over.wakeup, kNever);
  EXPECT_FALSE(rig.plan.in_flight());
  EXPECT_EQ(rig.fault(1), "answer 1") << "a late one";
  EXPECT_EQ(rig.plan.counters().blocked, 1000 + 990);
  // The slot still drains: it is used again after that. The next cut is owed everything.
  EXPECT_EQ(rig.cut(), "begun 3:8");
  EXPECT_EQ(rig.drained(0), "copy 0>0.0");
}

TEST(SnapshotPlan, ACopyThatEndsAfterAFailureCountsForNothing) {
  Rig rig(spec_of(2, 2));
  rig.write({0, 1});
  rig.cut();
  EXPECT_EQ(rig.on({.kind = E::failed, .trouble = SnapshotTrouble::drain_failed}), "failed 2");
  EXPECT_EQ(rig.full_cut(), "begun 3:8, copy 0>1.0") << "slot 0 has a copy under way";
  EXPECT_EQ(rig.copied(0, 0), "");
  EXPECT_EQ(rig.plan.state(0), ZoneState::copying);
  EXPECT_EQ(rig.copied(0, 1), "copy 1>1.1");
}

TEST(SnapshotPlan, AfterAFailureTheNextCutIsOwedEverything) {
  Rig rig(spec_of(2, 4));
  const E failed{.kind = E::failed, .trouble = SnapshotTrouble::watch_failed};
  EXPECT_EQ(rig.on(failed), "failed 0") << "no cut is in flight";
  EXPECT_EQ(rig.on(failed), "") << "once";
  EXPECT_EQ(rig.plan.counters().failures, 1u);
  rig.on({.kind = E::touch, .zone = 1});
  rig.on({.kind = E::unprotect, .zone = 0});
  rig.on(failed);
  rig.on({.kind = E::protect, .zone = 8, .count = 2});
  std::size_t dirty = 0;
  rig.plan.for_each_dirty([&](ZoneIndex) { ++dirty; });
  EXPECT_EQ(dirty, 9u);
  EXPECT_EQ(rig.cut(), "begun 2:9, copy 1>0.0");
}

TEST(SnapshotPlan, TheLastPlacesOfASlotAreForWrites) {
  SnapshotSpec spec = spec_of(2, 4, 2);
  spec.reserve = 2;
  Rig rig(spec);
  rig.write({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(rig.cut(), "begun 2:8, copy 0>0.0, copy 1>0.1");
  EXPECT_EQ(rig.copied(0, 0), "");
  EXPECT_EQ(rig.copied(1, 0), "drain 0:2, copy 2>1.0, copy 3>1.1") << "nothing drains: the link would be idle";
  EXPECT_EQ(rig.copied(2, 1), "");
  EXPECT_EQ(rig.copied(3, 1), "") << "a slot drains: the rest is for writes meanwhile";
  EXPECT_EQ(rig.fault(7), "duplicate 7>1.2");
  EXPECT_EQ(rig.fault(6), "duplicate 6>1.3");
  EXPECT_EQ(rig.fault(5), "wait 5");
}

TEST(SnapshotPlan, WithoutDuplicatesNothingIsReserved) {
  SnapshotSpec spec = spec_of(2, 4, 4);
  spec.reserve = 3;
  spec.duplicate = false;
  Rig rig(spec);
  rig.write({0, 1, 2, 3});
  EXPECT_EQ(rig.cut(), "begun 2:4, copy 0>0.0, copy 1>0.1, copy 2>0.2, copy 3>0.3");
}

// --- several cuts in flight

TEST(SnapshotPlan, ALaterCutLeavesToTheEarlierOneWhatThatIsStillOwed) {
  Rig rig(spec_of(3, 4));
  rig.write({1, 2, 3});
  EXPECT_EQ(rig.cut(), "begun 2:3, copy 1>0.0");
  EXPECT_EQ(rig.fault(2), "duplicate 2>0.1");
  rig.copied(2, 0);
  EXPECT_EQ(rig.cut(), "begun 3:1") << "3 is as it was";
  EXPECT_EQ(rig.plan.cut_of(2), 3u);
  EXPECT_EQ(rig.plan.cut_of(3), 2u);
  EXPECT_EQ(rig.fault(2), "duplicate 2>1.0") << "a slot has zones of one cut";
  EXPECT_EQ(rig.copied(2, 1), "answer 2, drain 1:1") << "cut 3 leans on cut 2, which depends on memory";
  EXPECT_EQ(rig.copied(1, 0), "copy 3>0.2");
  EXPECT_EQ(rig.copied(3, 0), "copied 2, copied 3, drain 0:3");
  EXPECT_EQ(rig.drained(1), "drained 3");
  EXPECT_EQ(rig.drained(0), "drained 2");
}

TEST(SnapshotPlan, AFullCutLeavesToCutsInFlightWhatTheyStoreUnchanged) {
  Rig rig(spec_of(3, 8));
  rig.write({1, 2, 3});
  rig.cut();
  rig.copied(1, 0);
  rig.fault(3);
  EXPECT_EQ(rig.full_cut(), "begun 3:5") << "1 is done, 2 and 3 are being copied";
  EXPECT_EQ(rig.plan.cut_of(0), 3u);
  for (ZoneIndex z : {1u, 2u, 3u}) EXPECT_EQ(rig.plan.cut_of(z), 2u);
  EXPECT_EQ(rig.copied(3, 0), "answer 3");
  EXPECT_EQ(rig.plan.state(3), ZoneState::duplicated) << "its write came after both cuts";
}

TEST(SnapshotPlan, AWriteThatFindsNoSlotForItsCutHasAnothersDrained) {
  Rig rig(spec_of(1, 4));
  rig.write({1, 2});
  rig.cut();
  rig.fault(1);
  EXPECT_EQ(rig.copied(1, 0), "answer 1, copy 2>0.1");
  rig.cut();
  EXPECT_EQ(rig.fault(1), "wait 1") << "the only slot is that of cut 2";
  EXPECT_EQ(rig.copied(2, 0), "copied 2, drain 0:2");
  EXPECT_EQ(rig.drained(0), "drained 2, duplicate 1>0.0");
}

TEST(SnapshotPlan, AnOpenSlotOfALaterCutDoesNotHoldUpTheEarlierOne) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2, 3, 4, 5, 6});
  rig.cut();
  EXPECT_EQ(rig.fault(2), "duplicate 2>0.1");
  EXPECT_EQ(rig.copied(2, 0), "answer 2");
  EXPECT_EQ(rig.cut(), "begun 3:1");
  EXPECT_EQ(rig.fault(2), "duplicate 2>1.0");
  EXPECT_EQ(rig.copied(2, 1), "answer 2, drain 1:1") << "its cut needs no more of it";
}

// --- the rest

TEST(SnapshotPlan, ATouchedZoneIsStoredAndARestoredOneIsNot) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2});
  EXPECT_EQ(rig.on({.kind = E::touch, .zone = 4, .count = 2}), "");
  EXPECT_EQ(rig.on({.kind = E::restored, .zone = 0, .count = 2}), "");
  std::vector<ZoneIndex> dirty;
  rig.plan.for_each_dirty([&](ZoneIndex z) { dirty.push_back(z); });
  EXPECT_EQ(dirty, (std::vector<ZoneIndex>{2, 4, 5}));
  EXPECT_EQ(rig.cut(), "begun 2:3, copy 2>0.0");
}

TEST(SnapshotPlan, WhatIsProtectedLaterIsStoredAndWhatIsUnprotectedIsNot) {
  Rig rig(spec_of(2, 4));
  rig.write({1, 2});
  rig.on({.kind = E::unprotect, .zone = 0, .count = 2});
  rig.on({.kind = E::protect, .zone = 100, .count = 2});
  EXPECT_EQ(rig.fault(1), "answer 1") << "a late one";
  rig.on({.kind = E::protect, .zone = 0});
  EXPECT_EQ(rig.plan.cut_of(0), 0u) << "its bytes are others";
  rig.on({.kind = E::unprotect, .zone = 0});
  EXPECT_EQ(rig.cut(), "begun 2:3, copy 2>0.0");
  EXPECT_EQ(rig.plan.cut_of(101), 2u);
  EXPECT_THROW(rig.on({.kind = E::unprotect, .zone = 100}), std::logic_error) << "a cut is owed it";
}

TEST(SnapshotPlan, WhatDoesNotFitIsSaidAtTheNextTick) {
  SnapshotSpec spec = spec_of(2, 200, 100);
  spec.duplicate = spec.hints = false;
  Rig rig(spec, 100);
  SnapshotCommands c = rig.plan.on({.kind = E::full_cut});
  EXPECT_TRUE(c.more);
  EXPECT_EQ(c.wakeup, 0);
  EXPECT_THROW(rig.fault(1), std::logic_error);
  std::size_t copies = c.list.size() - 1;
  c = rig.plan.on({});
  EXPECT_FALSE(c.more);
  EXPECT_EQ(copies + c.list.size(), 100u);
  for (ZoneIndex z = 0; z < 100; ++z) EXPECT_EQ(rig.fault(z), "wait " + std::to_string(z));
  for (ZoneIndex z = 0; z < 99; ++z) EXPECT_EQ(rig.copied(z, 0), "");
  c = rig.plan.on({.kind = E::copied, .zone = 99, .slot = 0});
  std::size_t answers = 0;
  for (;; c = rig.plan.on({})) {
    for (const C& one : c.list) answers += one.kind == C::answer;
    if (!c.more) break;
  }
  EXPECT_EQ(answers, 100u);
}

TEST(SnapshotPlan, WhatNothingAskedForThrows) {
  Rig rig(spec_of(2, 4));
  rig.now = 5;
  rig.tick();
  rig.now = 4;
  EXPECT_THROW(rig.tick(), std::logic_error);
  rig.now = 5;
  EXPECT_THROW(rig.copied(1, 0), std::logic_error);
  EXPECT_THROW(rig.drained(0), std::logic_error);
  EXPECT_THROW(rig.fault(8), std::logic_error);
  EXPECT_THROW(rig.on({.kind = E::failed}), std::logic_error);
  EXPECT_THROW(rig.on({.kind = E::protect, .zone = 1}), std::logic_error);
  rig.write({1});
  rig.cut();
  EXPECT_THROW(rig.on({.kind = E::touch, .zone = 1}), std::logic_error) << "the cut is owed it";
  EXPECT_THROW(rig.on({.kind = E::restored, .zone = 1}), std::logic_error);
  rig.copied(1, 0);
  EXPECT_THROW(rig.on({.kind = E::restored, .zone = 7, .count = 2}), std::logic_error) << "there is no zone 8";
  SnapshotSpec spec = spec_of(2, 4);
  spec.hints = false;
  Rig waiting(spec);
  waiting.write({1, 2});
  waiting.cut();
  waiting.copied(1, 0);
  EXPECT_THROW(waiting.on({.kind = E::restored, .zone = 1}), std::logic_error) << "no write was asked for";
  EXPECT_EQ(waiting.fault(1), "wait 1");
  EXPECT_THROW(waiting.on({.kind = E::touch, .zone = 1}), std::logic_error);
  EXPECT_THROW(waiting.on({.kind = E::unprotect, .zone = 1}), std::logic_error);
  EXPECT_THROW(SnapshotPlan({.slots = 0}), std::logic_error);
  EXPECT_THROW(SnapshotPlan({.slot_zones = 8, .reserve = 8}), std::logic_error);
  EXPECT_THROW(SnapshotPlan({.copies = 0}), std::logic_error);
  EXPECT_THROW(SnapshotPlan({.longest_wait = 0}), std::logic_error);
}

}  // namespace
}  // namespace ebb::planner
