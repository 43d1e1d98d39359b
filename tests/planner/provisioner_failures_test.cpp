// What a growth does with memory, and registrations, that fail or never come, by hand.
#include <gtest/gtest.h>

#include "provisioner_hands.hpp"

namespace ebb::policy {
namespace {

using namespace testing_support;

TEST(Provisioner, touching_that_fails_leaves_what_was_touched) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  Hands hands(spec);
  hands.placed(64 * kMiB);
  hands.touch_one();
  ASSERT_EQ(hands.touches[0].offset, 4 * kMiB);
  std::swap(hands.touches[0], hands.touches[1]);
  hands.touch_one(kMs, true);  // 8 to 12 MiB
  EXPECT_EQ(hands.state().limit, 8 * kMiB);
  EXPECT_TRUE(hands.state().touch_failed);
  hands.settle();
  EXPECT_EQ(hands.state().ready, 8 * kMiB);
  EXPECT_EQ(hands.state().limit, 8 * kMiB);
  hands.placed(256 * kMiB);
  EXPECT_TRUE(hands.touches.empty());
}

TEST(Provisioner, what_is_touched_behind_a_failure_does_not_count) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  Hands hands(spec);
  hands.touch_one(kMs, true);
  EXPECT_EQ(hands.state().limit, 0u);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 0u);
  EXPECT_EQ(hands.state().pinned, 0u);
  EXPECT_FALSE(hands.asked);
}

TEST(Provisioner, memory_that_faults_in_is_ready_at_once) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  spec.faults_in = true;
  Hands hands(spec);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 16 * kMiB);
  hands.placed(20 * kMiB);
  hands.touch_one(kMs, true);  // 16 to 20 MiB: placed, so that it stays
  EXPECT_EQ(hands.state().limit, 20 * kMiB);
  EXPECT_EQ(hands.state().ready, 20 * kMiB);
  hands.touch_all();
  hands.placed(256 * kMiB);
  EXPECT_TRUE(hands.touches.empty());
}

TEST(Provisioner, memory_that_faults_in_ends_before_what_there_is_none_for) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  spec.faults_in = true;
  Hands hands(spec);
  hands.placed(10 * kMiB);
  hands.on(ProvisionEvent::refused, 10 * kMiB);
  EXPECT_EQ(hands.state().limit, 10 * kMiB);
  EXPECT_EQ(hands.state().ready, 10 * kMiB);
  EXPECT_TRUE(hands.state().touch_failed);
  hands.touch_all();  // what was under way
  EXPECT_EQ(hands.state().ready, 10 * kMiB) << "no more of it, whatever is touched";
  hands.placed(100 * kMiB);
  EXPECT_TRUE(hands.touches.empty());
  EXPECT_TRUE(hands.provisioner.finished());

  Hands touched(spec);
  touched.settle();
  touched.on(ProvisionEvent::refused, 10 * kMiB);
  EXPECT_EQ(touched.state().limit, 16 * kMiB) << "what is touched is there";
  EXPECT_THROW(Hands(small()).on(ProvisionEvent::refused, 0), std::logic_error);
}

TEST(Provisioner, memory_that_faults_in_is_not_touched_any_more_after_a_failure) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  spec.faults_in = true;
  Hands hands(spec);
  hands.placed(256 * kMiB);
  hands.touch_one(kMs, true);
  hands.touch_one();
  EXPECT_TRUE(hands.touches.empty());
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
}

TEST(Provisioner, a_registration_that_fails_is_tried_smaller_and_then_given_up) {
  Hands hands(small());
  hands.touch_all();
  hands.placed(8 * kMiB);
  hands.grant();
  EXPECT_EQ(hands.pin->length, 4 * kMiB);
  hands.end_pin(kUs, true);
  EXPECT_EQ(hands.state().ready, 0u);
  hands.grant();
  EXPECT_EQ(hands.pin->length, 2 * kMiB);
  hands.end_pin(kUs);
  EXPECT_EQ(hands.state().ready, 2 * kMiB);
  hands.grant();
  EXPECT_EQ(hands.pin->length, 2 * kMiB);  // no larger again
  EXPECT_FALSE(hands.state().pin_failed);
  hands.end_pin(kUs, true);
  EXPECT_TRUE(hands.state().pin_failed);
  EXPECT_FALSE(hands.asked);
  EXPECT_FALSE(hands.ours);
  EXPECT_EQ(hands.state().ready, hands.state().touched);
  EXPECT_EQ(hands.state().pinned, 2 * kMiB);
  hands.placed(100 * kMiB);
  hands.touch_all();
  EXPECT_FALSE(hands.asked);
  EXPECT_GE(hands.state().ready, 100 * kMiB);
}

TEST(Provisioner, gives_up_after_three_failures_in_a_row) {
  ProvisionSpec spec = small();
  spec.first_piece = 16 * kMiB;
  Hands hands(spec);
  hands.touch_all();
  for (const Bytes length : {16, 8, 4}) {
    EXPECT_FALSE(hands.state().pin_failed);
    hands.grant();
    EXPECT_EQ(hands.pin->length, length * kMiB);
    hands.end_pin(kUs, true);
  }
  EXPECT_TRUE(hands.state().pin_failed);
}

TEST(Provisioner, patience_counts_from_when_memory_is_needed) {
  ProvisionSpec spec = small();
  spec.pin_deadline = 10 * kMs;
  Hands hands(spec);
  hands.touch_all();
  EXPECT_TRUE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, kNever);  // nobody needs it
  hands.now = 100 * kMs;
  hands.placed(3 * kMiB);
  EXPECT_EQ(hands.out.wakeup, 110 * kMs);
  hands.now = 110 * kMs - 1;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, 0u);
  EXPECT_EQ(hands.out.wakeup, 110 * kMs);
  hands.now = 110 * kMs;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, 4 * kMiB);  // by granules, and no more than is needed
  EXPECT_EQ(hands.out.wakeup, kNever);
  EXPECT_TRUE(hands.state().token_late);
  hands.placed(7 * kMiB);
  EXPECT_EQ(hands.state().ready, 8 * kMiB);  // the same wait
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{8 * kMiB, 4 * kMiB}));
  hands.end_pin(kUs);
  hands.placed(13 * kMiB);
  EXPECT_EQ(hands.state().ready, 14 * kMiB) << "the turn took 100 ms";
  while (!hands.touches.empty()) hands.touch_one(kUs);
  hands.grant();
  hands.end_pin(kUs);
  const Bytes ready = hands.state().ready;
  hands.placed(ready + kMiB);
  EXPECT_TRUE(hands.asked);
  EXPECT_EQ(hands.state().ready, ready);  // another wait
  EXPECT_EQ(hands.out.wakeup, hands.now + 10 * kMs);
}

TEST(Provisioner, patience_is_no_longer_than_the_program_takes_to_produce_so_much) {
  const auto waits = [](Bytes checkpoint, Time interval) {
    ProvisionSpec spec = small(4096 * kMiB);
    spec.impatience = 5 * kMs;
    Hands hands(spec);
    hands.settle();
    for (int i = 0; i < 30; ++i) {
      hands.now += interval;
      hands.on(ProvisionEvent::produced, 0, checkpoint);
    }
    hands.touch_all();
    hands.placed(kMiB + hands.state().ready);
    return hands.out.wakeup - hands.now;
  };
  EXPECT_EQ(waits(64 * kMiB, 10 * kMs), 20 * kMs);  // 128 MiB
  EXPECT_EQ(waits(256 * kMiB, 80 * kMs), 40 * kMs);
  EXPECT_EQ(waits(64 * kMiB, kMs), 5 * kMs) << "less would be gained than is lost";
  EXPECT_EQ(waits(64 * kMiB, 100 * kMs), 100 * kMs) << "no more than the pin_deadline";
}

TEST(Provisioner, patience_counts_while_registrations_come_too_slowly) {
  ProvisionSpec spec = small();
  spec.pin_deadline = 10 * kMs;
  spec.rest = 0;
  Hands hands(spec);
  hands.touch_all();
  hands.placed(16 * kMiB);
  hands.grant();
  hands.end_pin(6 * kMs);  // 4 MiB
  EXPECT_EQ(hands.state().ready, 4 * kMiB);
  hands.grant();
  hands.now += 5 * kMs;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, 4 * kMiB) << "what is being registered is not used meanwhile";
  hands.end_pin(kMs);  // over 10 ms
  EXPECT_EQ(hands.state().ready, 16 * kMiB);
  EXPECT_TRUE(hands.state().pin_late);
  EXPECT_FALSE(hands.state().token_late) << "it came";
}

TEST(Provisioner, patience_begins_anew_with_so_much_that_was_registered) {
  ProvisionSpec spec = small();
  spec.pin_deadline = 10 * kMs;
  spec.patient_for = 4 * kMiB;
  spec.first_piece = spec.largest_piece = 4 * kMiB;
  spec.least_lead = 64 * kMiB;
  spec.rest = 0;
  Hands hands(spec);
  hands.touch_all();
  hands.placed(64 * kMiB);
  for (Bytes ready = 4 * kMiB; ready <= 64 * kMiB; ready += 4 * kMiB) {
    hands.grant();
    hands.end_pin(400 * kUs);
    EXPECT_EQ(hands.state().ready, ready);
    hands.now += 5 * kMs;
    hands.on(ProvisionEvent::tick);
  }
  EXPECT_FALSE(hands.state().pin_late);
}

TEST(Provisioner, without_patience_it_waits_for_ever) {
  ProvisionSpec spec = small();
  spec.pin_deadline = kNever;
  Hands hands(spec);
  hands.placed(16 * kMiB);
  hands.touch_all();
  hands.now = kNever - 1;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.out.wakeup, kNever);
  EXPECT_EQ(hands.state().ready, 0u);
}

TEST(Provisioner, whole_is_one_registration_behind_everything) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  spec.pinning = Pinning::whole;
  spec.pin_deadline = kNever;
  Hands hands(spec);
  hands.placed(16 * kMiB);
  while (hands.state().touched < 256 * kMiB) {
    EXPECT_FALSE(hands.asked);
    hands.touch_one();
  }
  EXPECT_EQ(hands.state().ready, 0u);
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 256 * kMiB}));
  hands.end_pin(kMs);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  EXPECT_EQ(hands.state().pieces, 1u);
  EXPECT_FALSE(hands.asked);
}

TEST(Provisioner, whole_without_patience_is_used_before_it_is_registered) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  spec.pinning = Pinning::whole;
  spec.pin_deadline = 0;
  Hands hands(spec);
  hands.placed(7 * kMiB);
  hands.touch_one();
  EXPECT_EQ(hands.state().ready, 4 * kMiB);
  hands.touch_one();
  EXPECT_EQ(hands.state().ready, 8 * kMiB);
  EXPECT_FALSE(hands.state().token_late);
  hands.settle();
  EXPECT_EQ(hands.state().pinned, 256 * kMiB);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
}

TEST(Provisioner, what_is_being_registered_is_not_used_meanwhile) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  spec.pinning = Pinning::whole;
  spec.pin_deadline = 300 * kMs;
  Hands hands(spec);
  hands.touch_all();
  hands.grant();
  hands.placed(16 * kMiB);
  hands.now += 400 * kMs;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, 0u);
  EXPECT_EQ(hands.out.wakeup, kNever);
  hands.end_pin(kMs);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  EXPECT_EQ(hands.out.wakeup, kNever);
}

TEST(Provisioner, a_whole_registration_that_fails_leaves_everything_unpinned) {
  ProvisionSpec spec = small();
  spec.extent = Extent::all;
  spec.pinning = Pinning::whole;
  Hands hands(spec);
  hands.touch_all();
  hands.grant();
  hands.end_pin(kMs, true);
  EXPECT_TRUE(hands.state().pin_failed);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  EXPECT_FALSE(hands.ours);
}

}  // namespace
}  // namespace ebb::policy
