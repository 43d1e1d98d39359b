// What goes over a link before what: the urgent before the other, and the next while the last is still under way.
#include <stdexcept>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

// A store that an earlier process left, to be read through host memory: versions 0, 1, ... of 8 MiB, two chunks each.
Driver left(int versions, int depth, Bytes host = 256) {
  Machine m = machine_of(0, host, 1024);
  m.ephemeral = false;
  m.links.at(static_cast<std::size_t>(find_link(m.links, "local>host"))).depth = depth;
  Driver d(m);
  std::vector<Version> order;
  for (Version v = 0; v < versions; ++v) {
    d.adopt(v, 8);
    order.push_back(v);
  }
  d.hint(order);
  return d;
}

int on_link(const Driver& d, const char* name) {
  const int link = find_link(d.planner.machine().links, name);
  return static_cast<int>(std::ranges::count(d.under_way, link, &Command::link));
}

// How many reads of a version are under way.
int of_version(const Driver& d, Version v) {
  const int link = find_link(d.planner.machine().links, "local>host");
  return static_cast<int>(std::count_if(d.under_way.begin(), d.under_way.end(), [&](const Command& c) {
    return c.link == link && c.checkpoint == *d.planner.find(0, v);
  }));
}

void finish_first(Driver& d, const char* name) {
  const int link = find_link(d.planner.machine().links, name);
  const auto first =
      std::find_if(d.under_way.begin(), d.under_way.end(), [&](const Command& c) { return c.link == link; });
  d.finish(static_cast<std::size_t>(first - d.under_way.begin()));
}

TEST(PlannerLinks, TheNextIsReadWhileTheLastOfWhatIsAskedForIsOnItsWay) {
  Driver d = left(4, 4);
  d.restore(0);
  ASSERT_EQ(d.under_way.size(), 4u) << "the disk has all the work that it may hold";
  EXPECT_EQ(of_version(d, 0), 2);
  EXPECT_EQ(of_version(d, 1), 2);
}

TEST(PlannerLinks, WhatIsAskedForGoesFirst) {
  Driver d = left(4, 4);
  d.adopt(9, 32);
  d.restore(9);
  for (int sent = 4; sent < 8; ++sent) {
    ASSERT_EQ(of_version(d, 9), 4) << sent;
    ASSERT_EQ(on_link(d, "local>host"), 4) << "and nothing else";
    finish_first(d, "local>host");
  }
  EXPECT_EQ(of_version(d, 9), 4);
  finish_first(d, "local>host");
  EXPECT_EQ(of_version(d, 9), 3) << "all of it is on its way";
  EXPECT_EQ(of_version(d, 0), 1);
}

// Where a slot of the ring is free for the call's next chunk a moment later, the disk must not be full of others by
// then.
TEST(PlannerLinks, NothingIsSentBesideACallThatWaitsForASlotOfTheRing) {
  Machine m = machine_of(64, 64, 1024);
  m.ephemeral = false;
  m.nodes[kHost].staging = 2;
  m.links.at(static_cast<std::size_t>(find_link(m.links, "local>host"))).depth = 8;
  Driver d(m);
  for (Version v = 0; v < 4; ++v) d.adopt(v, 16);
  d.hint({0, 1, 2, 3});
  const RequestId read = d.restore(0);
  for (int i = 0; i < 100 && of_version(d, 0) > 0; ++i) {
    if (of_version(d, 0) == 2) {
      EXPECT_EQ(on_link(d, "local>host"), 2) << "two of four chunks have a slot";
    }
    d.finish();
  }
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(PlannerLinks, WhatTheProgramDoesNotDoNowWaitsUntilWhatIsAskedForHasCome) {
  Driver d = left(1, 4);
  d.checkpoint(9, 8);
  ASSERT_GT(on_link(d, "app>host"), 0);
  const RequestId read = d.restore(0);
  ASSERT_EQ(on_link(d, "local>host"), 2);
  while (on_link(d, "app>host") > 0) d.finish();
  EXPECT_EQ(on_link(d, "host>local"), 0) << "a flush would share the disk with a call that waits";
  while (on_link(d, "local>host") > 0) d.finish();
  EXPECT_EQ(on_link(d, "host>local"), 2);
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(PlannerLinks, OverAnotherLinkOfItsDeviceNothingIsSentBesideWhatIsAskedFor) {
  Driver d = left(1, 4);
  d.restore(0);
  d.checkpoint(9, 8);  // the program writes: flushes are what it does now
  while (on_link(d, "app>host") > 0) finish_first(d, "app>host");
  ASSERT_EQ(on_link(d, "local>host"), 2);
  EXPECT_EQ(on_link(d, "host>local"), 0);
  while (on_link(d, "local>host") > 0) finish_first(d, "local>host");
  EXPECT_EQ(on_link(d, "host>local"), 2);
  d.run();
}

TEST(PlannerLinks, ALinkGoesOnWhileWhatItCarriedIsChecked) {
  Driver d = left(8, 2);
  const RequestId read = d.restore(0);
  ASSERT_EQ(d.under_way.size(), 2u);
  d.carry(0);
  EXPECT_EQ(d.under_way.size(), 3u);
  d.carry(1);
  EXPECT_EQ(d.under_way.size(), 3u) << "as much waits for the checks as may wait for the link";
  EXPECT_EQ(on_link(d, "host>app"), 0) << "nothing that is not checked counts";
  d.finish();
  EXPECT_EQ(on_link(d, "local>host"), 3) << "checks have gone on, and so does the link";
  EXPECT_EQ(on_link(d, "host>app"), 1);
  for (int i = 0; i < 10 && !d.answered(read); ++i) d.finish();
  EXPECT_EQ(d.reason(read), Reason::ok);
  for (Version v = 1; v < 8; ++v) EXPECT_EQ(d.read(v), Reason::ok);
  d.run();
}

TEST(PlannerLinks, WhatFailsItsCheckIsReadAgain) {
  Driver d = left(2, 2);  // Planner::check(), after each event, counts what is on the link
  const RequestId read = d.restore(0);
  d.carry(0);
  d.finish(0, true);
  EXPECT_FALSE(d.answered(read));
  d.run();
  EXPECT_EQ(d.reason(read), Reason::ok);
}

TEST(PlannerLinks, WhatIsDroppedWhileItIsCheckedLeavesTheLinkAsItWas) {
  Driver d = left(6, 2);
  d.restore(0);
  d.carry(0);
  d.carry(1);
  d.tell(event::Drop{0});
  d.tell(event::Drop{1});
  d.run();
  for (Version v = 2; v < 6; ++v) EXPECT_EQ(d.read(v), Reason::ok);
}

TEST(PlannerLinks, ACommandIsCarriedOnceAndBeforeItsEnd) {
  Driver d = left(2, 2);
  d.restore(0);
  const CommandId id = d.under_way.front().id;
  d.carry(0);
  EXPECT_THROW(d.carry(0), std::logic_error);
  Driver e = left(2, 2);
  e.restore(0);
  const event::Carried late{e.under_way.front().id};
  e.finish();
  EXPECT_THROW(e.tell(late), std::logic_error);
  EXPECT_THROW(d.tell(event::Carried{id + 1000}), std::logic_error);
}

// Beside the flushes that make room, a direct copy in stream order would take longer than they do, and hold up the
// program's stream meanwhile.
TEST(PlannerLinks, ACheckpointInStreamOrderWaitsForTheRoomThatFlushesMakeNotBehindThem) {
  for (const bool ordered : {false, true}) {
    Machine machine = machine_of(16, 64, 0);
    machine.links[static_cast<std::size_t>(find_link(machine.links, "app>device"))].bytes_per_s = 1e12;
    Driver d(machine);
    for (Version v = 1; v <= 2; ++v) {
      const RequestId id = d.checkpoint(v, 8);
      while (!d.answered(id)) {
        std::size_t i = 0;
        while (d.under_way.at(i).from.at.kind != Endpoint::application) ++i;
        d.finish(i);
      }
    }
    EXPECT_GT(d.by_link["device>host"], 0u);
    const RequestId id = d.checkpoint(3, 8, 0, ordered);
    d.run();
    EXPECT_EQ(d.reason(id), Reason::ok);
    EXPECT_EQ(d.by_link["app>host"], ordered ? 0u : 8 * kMiB);
  }
}

}  // namespace
}  // namespace ebb::planner
