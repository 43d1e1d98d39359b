// One rule at a time, by hand. Every rule at once: provisioner_random_test.cpp.
#include <gtest/gtest.h>
#include <stdexcept>

#include "provisioner_hands.hpp"

namespace ebb::policy {
namespace {

using namespace testing_support;

TEST(Provisioner, starts_with_the_least_lead_in_pieces_for_its_threads) {
  Hands hands(small());
  EXPECT_EQ(hands.touches, (std::vector<ByteRange>{{0, 4 * kMiB}, {4 * kMiB, 4 * kMiB}}));
  hands.touch_one();
  EXPECT_EQ(hands.touches.back(), (ByteRange{8 * kMiB, 4 * kMiB}));
  EXPECT_EQ(hands.state().touched, 4 * kMiB);
  EXPECT_EQ(hands.state().ready, 0u);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 16 * kMiB);
  EXPECT_EQ(hands.state().ready, 16 * kMiB);
  EXPECT_FALSE(hands.ours);
}

TEST(Provisioner, a_gap_in_what_is_touched_holds_up_what_lies_behind_it) {
  Hands hands(small());
  std::swap(hands.touches[0], hands.touches[1]);
  hands.touch_one();
  EXPECT_EQ(hands.state().touched, 0u);
  EXPECT_FALSE(hands.asked);
  hands.touch_one();
  EXPECT_EQ(hands.state().touched, 8 * kMiB);
  EXPECT_TRUE(hands.asked);
}

TEST(Provisioner, the_token_goes_back_after_each_registration) {
  Hands hands(small());
  hands.touch_all();
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{0, 4 * kMiB}));
  hands.pin.reset();
  hands.on(ProvisionEvent::pinned, 0, 4 * kMiB, 300 * kUs);
  EXPECT_TRUE(hands.out.give_back);
  EXPECT_TRUE(hands.out.ask);
  EXPECT_EQ(hands.state().ready, 4 * kMiB);
}

TEST(Provisioner, a_token_that_nobody_needs_now_goes_back) {
  ProvisionSpec spec = small(64 * kMiB);
  spec.least_lead = spec.most_lead = 0;
  spec.first_piece = spec.largest_piece = 8 * kMiB;
  spec.pin_deadline = 10 * kMs;
  spec.rest = 0;
  Hands hands(spec);
  hands.placed(32 * kMiB);
  hands.touch_all();
  hands.now += 10 * kMs;
  hands.on(ProvisionEvent::tick);
  EXPECT_EQ(hands.state().ready, 32 * kMiB);
  for (int i = 0; i < 2; ++i) {  // the first has waited for its turn for long, the second has not
    hands.grant();
    hands.end_pin(kUs);
  }
  EXPECT_TRUE(hands.asked);  // for the rest of what was used without
  hands.placed(40 * kMiB);
  hands.touch_one();  // half a piece that is waited for
  hands.grant();
  EXPECT_TRUE(hands.out.give_back);
  EXPECT_FALSE(hands.out.ask || hands.pin);
  EXPECT_EQ(hands.state().pinned, 16 * kMiB);
  hands.touch_one();
  hands.grant();
  EXPECT_EQ(hands.pin, (ByteRange{32 * kMiB, 8 * kMiB}));
}

TEST(Provisioner, pieces_double_while_that_is_expected_to_stay_short) {
  ProvisionSpec spec = small();
  spec.rest = 0;
  Hands hands(spec);
  hands.placed(256 * kMiB);
  const auto pin_one = [&](Bytes expected, Time took) {
    hands.touch_all();
    hands.grant();
    ASSERT_TRUE(hands.pin);
    EXPECT_EQ(hands.pin->length, expected);
    hands.end_pin(took);
  };
  pin_one(4 * kMiB, 250 * kUs);
  pin_one(8 * kMiB, 251 * kUs);
  pin_one(8 * kMiB, 250 * kUs);
  pin_one(16 * kMiB, 500 * kUs);
  pin_one(16 * kMiB, 501 * kUs);
  pin_one(8 * kMiB, 900 * kUs);
  pin_one(4 * kMiB, 900 * kUs);
  pin_one(2 * kMiB, 900 * kUs);
  pin_one(2 * kMiB, 100 * kUs);
  EXPECT_EQ(hands.state().piece, 4 * kMiB);
}

TEST(Provisioner, pieces_end_at_their_largest) {
  ProvisionSpec spec = small(1024 * kMiB);
  spec.largest_piece = 16 * kMiB;
  spec.extent = Extent::all;
  Hands hands(spec);
  hands.settle(kUs);
  EXPECT_EQ(hands.state().piece, 16 * kMiB);
  EXPECT_EQ(hands.state().pieces, 2u + (1024 - 12 + 15) / 16);
  EXPECT_EQ(hands.state().pinned, 1024 * kMiB);
}

TEST(Provisioner, an_odd_end_is_touched_and_pinned_too) {
  ProvisionSpec spec = small(9 * kMiB + 4096);
  spec.extent = Extent::all;
  Hands hands(spec);
  hands.settle();
  EXPECT_EQ(hands.state().ready, 9 * kMiB + 4096);
}

TEST(Provisioner, the_lead_follows_the_checkpoints_and_ends_at_its_most) {
  ProvisionSpec spec = small(4096 * kMiB);
  spec.pinning = Pinning::none;
  Hands hands(spec);
  EXPECT_EQ(hands.provisioner.goal(hands.now), 16 * kMiB);
  hands.on(ProvisionEvent::produced, 0, 40 * kMiB);
  EXPECT_EQ(hands.provisioner.goal(hands.now), 40 * kMiB);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 40 * kMiB);
  hands.placed(40 * kMiB);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 80 * kMiB);
  hands.on(ProvisionEvent::produced, 0, 1000 * kMiB);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 104 * kMiB);  // placed and most_lead
  hands.placed(2048 * kMiB);
  hands.settle();
  EXPECT_EQ(hands.state().touched, 2048 * kMiB + 256 * kMiB);  // an eighth
}

TEST(Provisioner, a_production_that_touching_can_hardly_follow_takes_the_most) {
  ProvisionSpec spec = small(4096 * kMiB);
  spec.pinning = Pinning::none;
  spec.most_lead = 200 * kMiB;
  const auto lead = [&](Time interval) {
    Hands hands(spec);
    hands.touch_one(kMs);
    for (int i = 0; i < 3; ++i) {
      hands.now += interval;
      hands.on(ProvisionEvent::produced, 0, 32 * kMiB);
    }
    return hands.provisioner.goal(hands.now);
  };
  // Touching: 4 MiB a millisecond, two pieces of 4 MiB after 2 ms.
  EXPECT_EQ(lead(5 * kMs), 200 * kMiB);  // 9.6 MiB a millisecond with the safety
  EXPECT_EQ(lead(24 * kMs), 40 * kMiB);  // 2: 32 + 2 * 2 / (1 - 2/4)
  EXPECT_EQ(lead(1000 * kMs), 34 * kMiB);
  // And a rest of the program takes it back.
  Hands hands(spec);
  hands.touch_one(kMs);
  for (int i = 0; i < 3; ++i) {
    hands.now += 5 * kMs;
    hands.on(ProvisionEvent::produced, 0, 32 * kMiB);
  }
  EXPECT_EQ(hands.provisioner.goal(hands.now + 1000 * kMs), 34 * kMiB);
}

TEST(Provisioner, a_production_that_pinning_can_hardly_follow_takes_the_most_too) {
  ProvisionSpec spec = small(4096 * kMiB);
  spec.most_lead = 200 * kMiB;
  const auto lead = [&](Time pin_took) {
    Hands hands(spec);
    hands.settle(pin_took);
    for (int i = 0; i < 3; ++i) {
      hands.now += 48 * kMs;
      hands.on(ProvisionEvent::produced, 0, 32 * kMiB);
    }
    return hands.provisioner.goal(hands.now);
  };
  EXPECT_LT(lead(kMs), 64 * kMiB);
  EXPECT_EQ(lead(8 * kMs), 200 * kMiB);  // half a mebibyte a millisecond, against one and the safety
}

TEST(Provisioner, a_turn_that_comes_late_is_looked_ahead_for) {
  ProvisionSpec spec = small(4096 * kMiB);
  spec.most_lead = 200 * kMiB;
  spec.pin_deadline = kNever;
  const auto lead = [&](Time wait) {
    Hands hands(spec);
    hands.touch_all();
    hands.now += wait;
    hands.settle(kMs);
    for (int i = 0; i < 3; ++i) {
      hands.now += 48 * kMs;
      hands.on(ProvisionEvent::produced, 0, 32 * kMiB);
    }
    return hands.provisioner.goal(hands.now);
  };
  EXPECT_GE(lead(200 * kMs), lead(0) + 16 * kMiB);
}

TEST(Provisioner, touching_pauses_for_a_copy_unless_somebody_waits_for_it) {
  ProvisionSpec spec = small();
  spec.beside = Beside::pause;
  spec.pinning = Pinning::none;
  Hands hands(spec);
  hands.on(ProvisionEvent::copy_begun);
  hands.touch_all();
  EXPECT_EQ(hands.state().asked, 8 * kMiB);  // what was under way
  hands.placed(11 * kMiB);
  EXPECT_EQ(hands.state().asked, 12 * kMiB);
  hands.touch_all();
  EXPECT_EQ(hands.state().asked, 12 * kMiB);
  hands.on(ProvisionEvent::copy_begun);
  hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
  EXPECT_TRUE(hands.touches.empty());
  hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
  EXPECT_FALSE(hands.touches.empty());
}

TEST(Provisioner, registration_pauses_for_a_copy_unless_somebody_waits_for_it) {
  ProvisionSpec spec = small();
  spec.beside = Beside::pause;
  Hands hands(spec);
  hands.on(ProvisionEvent::copy_begun);
  hands.touch_all();
  EXPECT_FALSE(hands.asked);
  hands.placed(1);
  EXPECT_TRUE(hands.asked);
  hands.grant();
  hands.end_pin(300 * kUs);
  EXPECT_FALSE(hands.asked);
  hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
  EXPECT_TRUE(hands.asked);
}

TEST(Provisioner, always_means_that_copies_do_not_count) {
  ProvisionSpec spec = small();
  spec.beside = Beside::always;
  Hands hands(spec);
  hands.on(ProvisionEvent::copy_begun);
  hands.settle();
  EXPECT_EQ(hands.state().ready, 16 * kMiB);
}

TEST(Provisioner, figures_tell_what_was_alone_from_what_was_not) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  spec.least_lead = 64 * kMiB;
  spec.touchers = 1;
  Hands hands(spec);
  hands.touch_one(2 * kMs);
  EXPECT_NEAR(hands.state().figures.touch_alone, 4 * kMiB / 2e-3, 1);
  hands.on(ProvisionEvent::copy_begun);
  hands.touch_one(4 * kMs);
  EXPECT_NEAR(hands.state().figures.touch_beside, 4 * kMiB / 4e-3, 1);
  hands.on(ProvisionEvent::copy_ended, 0, 32 * kMiB, 4 * kMs);
  EXPECT_NEAR(hands.state().figures.copy_beside, 32 * kMiB / 4e-3, 1);
  EXPECT_NEAR(hands.state().figures.touch_alone, 4 * kMiB / 2e-3, 1);
  EXPECT_EQ(hands.state().figures.copy_alone, 0);
  while (!hands.touches.empty()) hands.touch_one(2 * kMs);
  hands.on(ProvisionEvent::copy_begun);
  hands.on(ProvisionEvent::copy_begun);
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_ended, 0, 32 * kMiB, kMs);
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_ended, 0, 32 * kMiB, 2 * kMs);  // it stood behind the first
  EXPECT_NEAR(hands.state().figures.copy_alone, 32 * kMiB / 1e-3, 1);
  hands.on(ProvisionEvent::copy_begun);
  hands.now += 50 * kMs;
  hands.on(ProvisionEvent::copy_ended);  // it failed
  EXPECT_NEAR(hands.state().figures.copy_alone, 32 * kMiB / 1e-3, 1);
}

TEST(Provisioner, figures_leave_out_what_was_half_alone_and_take_the_later_begin) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  spec.touchers = 1;
  Hands hands(spec);
  hands.now = kMs;
  hands.on(ProvisionEvent::copy_begun);
  hands.now = 3 * kMs;
  hands.on(ProvisionEvent::copy_ended, 0, 8 * kMiB, 2 * kMs);
  hands.touch_one(kMs);  // 4 ms in all, 2 of them beside the copy
  EXPECT_EQ(hands.state().figures.touch_alone, 0);
  EXPECT_EQ(hands.state().figures.touch_beside, 0);
  hands.touch_all();
  // Told 2 ms late.
  Hands late(spec);
  late.now = 3 * kMs;
  late.on(ProvisionEvent::touched, 0, 4 * kMiB, kMs);
  EXPECT_NEAR(late.state().figures.touch_alone, 4 * kMiB / 1e-3, 1);
  // A second copy that begins meanwhile does not shorten the first.
  hands.on(ProvisionEvent::copy_begun);
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_begun);
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_ended, 0, 8 * kMiB, 2 * kMs);
  EXPECT_NEAR(hands.state().figures.copy_alone, 8 * kMiB / 2e-3, 1);
}

TEST(Provisioner, a_rest_of_the_program_is_no_interval) {
  Hands hands(small());
  for (int i = 0; i < 4; ++i) {
    hands.now += 10 * kMs;
    hands.on(ProvisionEvent::produced, 0, 8 * kMiB);
  }
  EXPECT_NEAR(hands.state().figures.interval, 10e6, 1);
  EXPECT_NEAR(hands.state().figures.bytes, 8 * kMiB, 1);
  hands.now += 10'000 * kMs;
  hands.on(ProvisionEvent::produced, 0, 16 * kMiB);
  EXPECT_NEAR(hands.state().figures.interval, 17.5e6, 1);
  EXPECT_NEAR(hands.state().figures.bytes, 10 * kMiB, 1);
}

TEST(Provisioner, the_lead_forgets_a_large_checkpoint_little_by_little) {
  ProvisionSpec spec = small();
  spec.pinning = Pinning::none;
  Hands hands(spec);
  hands.on(ProvisionEvent::produced, 0, 48 * kMiB);
  hands.on(ProvisionEvent::produced, 0, 16 * kMiB);
  EXPECT_EQ(hands.provisioner.goal(hands.now), 44 * kMiB);
}

TEST(Provisioner, goes_by_whole_registrations) {
  ProvisionSpec spec = small();
  spec.first_piece = 8 * kMiB;
  Hands hands(spec);
  hands.placed(1);
  EXPECT_EQ(hands.provisioner.goal(0), 24 * kMiB);
}

TEST(Provisioner, what_is_placed_never_shrinks_and_ends_with_the_cache) {
  Hands hands(small());
  hands.placed(8 * kMiB);
  hands.placed(4 * kMiB);
  EXPECT_EQ(hands.state().placed, 8 * kMiB);
  hands.placed(1000 * kMiB);
  EXPECT_EQ(hands.state().placed, 256 * kMiB);
}

TEST(Provisioner, failures_of_registration_count_in_a_row_only) {
  ProvisionSpec spec = small();
  spec.first_piece = 16 * kMiB;
  Hands hands(spec);
  hands.placed(256 * kMiB);
  for (const Bytes length : {16, 8, 4}) {
    hands.touch_all();
    hands.grant();
    EXPECT_EQ(hands.pin->length, length * kMiB);
    hands.end_pin(kUs, true);
    EXPECT_FALSE(hands.state().pin_failed);
    hands.grant();
    hands.end_pin(300 * kUs);
  }
}

TEST(Provisioner, the_model_switches_by_what_it_measures) {
  ProvisionSpec spec = small(8192 * kMiB);
  spec.pinning = Pinning::none;
  Hands hands(spec);
  // 10 ms of touching and 4 ms of copying for each checkpoint of 40 MiB.
  Bytes end = 0;
  const auto round = [&](Time interval) {
    const Time begun = hands.now;
    hands.on(ProvisionEvent::produced, 0, 40 * kMiB);
    end += 40 * kMiB;
    hands.placed(end);
    while (hands.state().ready < end) hands.touch_one();
    hands.on(ProvisionEvent::copy_begun);
    hands.now += 4 * kMs;
    hands.on(ProvisionEvent::copy_ended, 0, 40 * kMiB, 4 * kMs);
    hands.touch_all();
    hands.now = std::max(hands.now, begun + interval);
  };
  hands.touch_all();
  for (int i = 0; i < 20; ++i) round(60 * kMs);
  EXPECT_TRUE(hands.state().sequential);
  for (int i = 0; i < 20; ++i) round(kMs);  // as fast as it goes
  EXPECT_FALSE(hands.state().sequential);
}

TEST(Provisioner, nothing_grows_from_nothing) {
  Hands hands(small(0));
  hands.placed(1);
  EXPECT_TRUE(hands.touches.empty());
  EXPECT_FALSE(hands.asked);
}

TEST(Provisioner, broken_contracts_are_thrown) {
  ProvisionSpec spec = small();
  spec.granule = 0;
  EXPECT_THROW(Provisioner{spec}, std::logic_error);
  spec = small();
  spec.faults_in = true;
  EXPECT_THROW(Provisioner{spec}, std::logic_error);

  Hands hands(small());
  EXPECT_THROW(hands.on(ProvisionEvent::granted), std::logic_error);
  EXPECT_THROW(hands.on(ProvisionEvent::touched, 1, 2), std::logic_error);
  EXPECT_THROW(hands.on(ProvisionEvent::pinned, 0, 4 * kMiB), std::logic_error);
  EXPECT_THROW(hands.on(ProvisionEvent::pin_failed, 0, 4 * kMiB), std::logic_error);
  EXPECT_THROW(hands.on(ProvisionEvent::copy_ended), std::logic_error);
  hands.now = -1;
  EXPECT_THROW(hands.on(ProvisionEvent::tick), std::logic_error);
}

}  // namespace
}  // namespace ebb::policy
