// Memory that was used unpinned, for it was needed sooner than its turn came: pinned later.
#include <gtest/gtest.h>
#include <stdexcept>

#include "tests/planner/provisioner_hands.hpp"
#include "tests/planner/provisioner_world.hpp"

namespace ebb::policy {
namespace {

using testing_support::Hands;
using testing_support::small;

ProvisionSpec impatient() {
  ProvisionSpec spec = small(64 * kMiB);
  spec.extent = Extent::all;
  spec.pin_deadline = 10 * kMs;
  spec.rest = 0;
  spec.first_piece = spec.largest_piece = 8 * kMiB;
  return spec;
}

// All of it is touched, and so much in use without; a turn has been asked for.
Hands used(Bytes bytes, const ProvisionSpec& spec = impatient()) {
  Hands hands(spec);
  hands.touch_all();
  hands.placed(bytes);
  hands.now += spec.pin_deadline;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, bytes);
  EXPECT_EQ(hands.state().pinned, 0u);
  return hands;
}

// The same where nothing is touched but what was placed.
Hands used_as_placed(Bytes bytes, const ProvisionSpec& like) {
  ProvisionSpec spec = like;
  spec.extent = Extent::needed;
  spec.least_lead = spec.most_lead = 0;
  Hands hands(spec);
  hands.placed(bytes);
  hands.touch_all();
  hands.now += spec.pin_deadline;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, bytes);
  EXPECT_EQ(hands.state().pinned, 0u);
  return hands;
}

TEST(GrowthLater, what_was_used_without_is_pinned_behind_all_else) {
  Hands hands = used(20 * kMiB);
  for (const ByteRange& range : {ByteRange{20 * kMiB, 8 * kMiB},
                                 {28 * kMiB, 8 * kMiB},
                                 {36 * kMiB, 8 * kMiB},
                                 {44 * kMiB, 8 * kMiB},
                                 {52 * kMiB, 8 * kMiB},
                                 {60 * kMiB, 4 * kMiB},
                                 {0, 8 * kMiB},
                                 {8 * kMiB, 8 * kMiB},
                                 {16 * kMiB, 4 * kMiB}}) {
    EXPECT_FALSE(hands.provisioner.finished());
    hands.grant();
    ASSERT_EQ(hands.pin, range);
    hands.end_pin(kUs);
    EXPECT_FALSE(hands.ours);
  }
  EXPECT_EQ(hands.state().ready, 64 * kMiB);
  EXPECT_EQ(hands.state().pinned, 64 * kMiB);
  EXPECT_FALSE(hands.asked);
  EXPECT_TRUE(hands.provisioner.finished());
}

TEST(GrowthLater, a_turn_that_was_asked_for_before_it_was_in_use_is_for_it) {
  ProvisionSpec spec = impatient();
  spec.pin_deadline = 0;
  Hands hands(spec);
  hands.placed(64 * kMiB);
  while (hands.touches.size() > 1 || !hands.asked) hands.touch_one();
  hands.touch_all();
  EXPECT_EQ(hands.state().ready, 64 * kMiB);
  EXPECT_FALSE(hands.provisioner.finished());
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 8 * kMiB}));
}

TEST(GrowthLater, what_is_waited_for_goes_first) {
  ProvisionSpec spec = impatient();
  spec.first_piece = spec.largest_piece = 4 * kMiB;
  spec.touch_piece = 4 * kMiB;
  Hands hands = used_as_placed(12 * kMiB, spec);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 4 * kMiB}));
  hands.end_pin(kUs);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{4 * kMiB, 4 * kMiB}));
  hands.placed(16 * kMiB);
  hands.touch_one(kUs);
  EXPECT_EQ(hands.state().touched, 16 * kMiB);
  EXPECT_EQ(hands.state().ready, 12 * kMiB);
  hands.end_pin(kUs);  // turn and registration were fast: it waits again
  EXPECT_EQ(hands.state().ready, 12 * kMiB);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{12 * kMiB, 4 * kMiB}));
  hands.end_pin(kUs);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{8 * kMiB, 4 * kMiB}));
}

TEST(GrowthLater, what_a_transfer_uses_is_tried_again_ever_more_seldom) {
  ProvisionSpec spec = impatient();
  Hands hands = used(64 * kMiB, spec);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 8 * kMiB}));
  Time wait = spec.longest_pin;
  for (Bytes offset = 0; offset < 9 * 8 * kMiB; offset += 8 * kMiB) {
    EXPECT_EQ(hands.pin, (ByteRange{offset % (64 * kMiB), 8 * kMiB}));
    hands.busy_pin();
    EXPECT_FALSE(hands.ours || hands.asked);
    EXPECT_EQ(hands.out.wakeup, hands.now + wait);
    hands.now += wait - 1;
    hands.on(ProvisionEvent::tick);
    EXPECT_FALSE(hands.asked);
    ++hands.now;
    hands.on(ProvisionEvent::tick);
    hands.grant();
    wait = std::min(2 * wait, 64 * spec.longest_pin);
  }
  hands.end_pin(kUs);
  hands.grant();
  hands.busy_pin();
  EXPECT_EQ(hands.out.wakeup, hands.now + spec.longest_pin) << "one that succeeded begins anew";
}

TEST(GrowthLater, the_rest_of_a_range_is_pinned_with_what_lies_before_it) {
  Hands hands = used(64 * kMiB);
  hands.grant();
  hands.busy_pin();
  hands.rest();
  for (Bytes offset = 8 * kMiB; offset <= 64 * kMiB; offset += 8 * kMiB) {
    hands.grant();
    EXPECT_EQ(hands.pin, (ByteRange{offset % (64 * kMiB), 8 * kMiB}));
    hands.end_pin(kUs);
  }
  EXPECT_EQ(hands.state().pinned, 64 * kMiB);
  EXPECT_TRUE(hands.provisioner.finished());
}

TEST(GrowthLater, where_registering_holds_up_the_program_it_is_seldom) {
  ProvisionSpec spec = impatient();
  spec.granule = spec.first_piece = spec.largest_piece = 4 * kMiB;
  Hands hands = used(64 * kMiB, spec);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 4 * kMiB}));
  hands.end_pin(10 * kMs);
  EXPECT_FALSE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, hands.now + 500 * kMs);
  hands.rest();
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{4 * kMiB, 4 * kMiB}));
  hands.end_pin(100 * kUs);
  EXPECT_TRUE(hands.asked) << "it is not slow any more";
}

// A program that goes on producing asks for turns too, and in vain where what they were for is in use meanwhile.
TEST(GrowthLater, a_turn_in_vain_ends_no_rest) {
  ProvisionSpec spec = impatient();
  spec.granule = spec.first_piece = spec.largest_piece = 4 * kMiB;
  spec.rest = 50 * kUs;
  Hands hands = used_as_placed(32 * kMiB, spec);
  hands.grant();
  hands.end_pin(300 * kMs);
  const Time until = hands.now + 50 * 300 * kMs;
  EXPECT_EQ(hands.out.wakeup, until);
  hands.now += 1300 * kMs;
  hands.placed(40 * kMiB);
  hands.touch_all();
  EXPECT_EQ(hands.state().ready, 40 * kMiB);
  hands.grant();
  EXPECT_FALSE(hands.pin || hands.asked);
  EXPECT_EQ(hands.out.wakeup, until);
}

TEST(GrowthLater, is_for_when_no_copy_runs_or_has_not_run_for_long) {
  ProvisionSpec spec = impatient();
  Hands hands = used(64 * kMiB, spec);
  hands.on(ProvisionEvent::copy_begun);
  hands.grant();
  EXPECT_FALSE(hands.pin || hands.ours || hands.asked);
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
  EXPECT_TRUE(hands.asked);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 8 * kMiB}));
  hands.on(ProvisionEvent::copy_begun);
  hands.end_pin(kUs);
  EXPECT_FALSE(hands.asked);
  for (int i = 0; i < 2; ++i) {  // copies without end
    hands.now += spec.pin_deadline - 1;
    hands.on(ProvisionEvent::copy_begun);
    hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
    EXPECT_FALSE(hands.asked);
    hands.now += 1;
    hands.on(ProvisionEvent::copy_begun);
    hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
    hands.grant();
    EXPECT_EQ(hands.pin->length, 8 * kMiB);
    hands.end_pin(0);
  }
}

// Each costs a process system calls, and others their turns.
TEST(GrowthLater, turns_in_vain_become_seldom) {
  ProvisionSpec spec = impatient();
  spec.pin_deadline = 100 * kMs;
  Hands hands = used(64 * kMiB, spec);
  int asks = 0, pins = 0;
  for (const Time end = hands.now + 1000 * kMs; hands.now < end && hands.state().pinned < 64 * kMiB;) {
    hands.on(ProvisionEvent::copy_begun);  // before the turn comes
    hands.now += 100 * kUs;
    if (hands.asked) {
      ++asks;
      hands.grant();
    }
    if (hands.pin) {
      ++pins;
      hands.end_pin(kUs);
    }
    hands.on(ProvisionEvent::copy_ended, 0, kMiB, 100 * kUs);
    hands.now += 10 * kUs;
  }
  EXPECT_EQ(pins, 7) << "one each pin_deadline and the pause that has grown meanwhile";
  EXPECT_LE(asks, 80);
}

TEST(GrowthLater, copies_that_go_first_do_not_keep_it_for_ever) {
  ProvisionSpec spec = impatient();
  spec.beside = Beside::pause;
  Hands hands = used(64 * kMiB, spec);
  hands.on(ProvisionEvent::copy_begun);  // and stands
  hands.grant();
  EXPECT_FALSE(hands.pin);
  while (hands.state().pinned < 64 * kMiB) {
    ASSERT_FALSE(hands.asked);
    ASSERT_NE(hands.out.wakeup, kNever);
    hands.rest();
    if (!hands.asked) continue;
    hands.grant();
    hands.end_pin(kUs);
  }
  EXPECT_LE(hands.now, 8 * 2 * spec.pin_deadline);
}

TEST(GrowthLater, what_is_registered_ahead_does_not_put_it_off) {
  ProvisionSpec spec = impatient();
  spec.capacity = 1024 * kMiB;
  Hands hands = used_as_placed(64 * kMiB, spec);
  for (int i = 0; i < 2; ++i) {  // the first has waited for its turn for long, the second has not
    hands.grant();
    hands.end_pin(kUs);
  }
  hands.on(ProvisionEvent::copy_begun);  // one always runs
  Bytes placed = 64 * kMiB;
  while (hands.state().pinned - (placed - 64 * kMiB) < 64 * kMiB) {
    ASSERT_LT(placed, 1024 * kMiB);
    hands.placed(placed += 8 * kMiB);
    hands.touch_one(kUs);
    hands.touch_one(kUs);
    EXPECT_EQ(hands.state().ready, placed - 8 * kMiB) << "it is waited for";
    for (int turns = 0; turns < 2 && hands.asked; ++turns) {
      hands.grant();
      if (hands.pin) hands.end_pin(kUs);
    }
    EXPECT_EQ(hands.state().ready, placed);
    hands.now += 4 * kMs;
    hands.on(ProvisionEvent::tick);
  }
}

TEST(GrowthLater, who_has_no_patience_blames_no_other_process) {
  ProvisionSpec spec = impatient();
  spec.pin_deadline = 0;
  Hands hands(spec);
  hands.placed(4 * kMiB);
  hands.touch_one();
  EXPECT_EQ(hands.state().ready, 4 * kMiB);
  EXPECT_FALSE(hands.state().token_late);
  EXPECT_TRUE(hands.state().pin_late);
}

TEST(GrowthLater, failures_end_it) {
  Hands hands = used(64 * kMiB);
  for (const Bytes length : {8, 4, 2}) {
    EXPECT_FALSE(hands.state().pin_failed);
    hands.grant();
    EXPECT_EQ(hands.pin, (ByteRange{0, length * kMiB}));
    hands.end_pin(kUs, true);
  }
  EXPECT_TRUE(hands.state().pin_failed);
  EXPECT_TRUE(hands.provisioner.finished());
}

TEST(GrowthLater, only_what_is_in_use_can_be_busy) {
  Hands hands(impatient());
  hands.touch_all();
  hands.grant();
  EXPECT_THROW(hands.busy_pin(), std::logic_error);
}

// Turns bring less than the program produces, until it ends; then all of it is pinned.
TEST(GrowthLater, turns_that_were_too_few_are_made_up_for) {
  WorldSpec machine;
  machine.pin_rate = 1e9;
  World world(machine, 1);
  ProvisionSpec spec;
  spec.capacity = Bytes{4} << 30;
  spec.pin_deadline = 10 * kMs;
  World::Process& p = world.add(spec);
  world.program(p, 32, 5 * kMs, 128 * kMiB, 128 * kMiB);
  world.run();
  EXPECT_TRUE(p.provisioner.state().pin_late);
  EXPECT_LE(p.longest_wait, 40 * kMs);
  EXPECT_EQ(p.pinned, Bytes{4} << 30);
}

}  // namespace
}  // namespace ebb::policy
