// Rests between registrations: a copy of the program sleeps at the driver's lock while they follow each other.
#include <gtest/gtest.h>
#include <stdexcept>

#include "provisioner_hands.hpp"

namespace ebb::policy {
namespace {

using namespace testing_support;

// Pieces of one size, all of them touched, that are needed at once.
ProvisionSpec resting(Time rest = 50 * kUs, Time after = 2 * kMs) {
  ProvisionSpec spec = small();
  spec.largest_piece = spec.first_piece;
  spec.rest = rest;
  spec.rest_after = after;
  return spec;
}

Hands touched(const ProvisionSpec& spec) {
  Hands hands(spec);
  hands.placed(spec.capacity);
  hands.touch_all();
  return hands;
}

void pin_one(Hands& hands, Time took) {
  hands.grant();
  hands.end_pin(took);
}

TEST(GrowthRest, comes_when_registrations_took_long_together) {
  Hands hands = touched(resting());
  pin_one(hands, 500 * kUs);
  const Time since = hands.now;  // what was needed before it came is registered
  for (int i = 0; i < 2; ++i) pin_one(hands, 500 * kUs);
  EXPECT_TRUE(hands.asked) << "1.5 ms of them";
  pin_one(hands, 500 * kUs);
  EXPECT_TRUE(hands.out.give_back) << "the token is not kept for it";
  EXPECT_FALSE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, hands.now + 50 * kUs);
  hands.now += 50 * kUs - 1;
  hands.on(ProvisionEvent::tick);
  EXPECT_FALSE(hands.asked);
  hands.now += 1;
  hands.on(ProvisionEvent::tick);
  EXPECT_TRUE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, since + hands.provisioner.spec().pin_deadline) << "of the pin_deadline alone";
  for (int i = 0; i < 3; ++i) pin_one(hands, 500 * kUs);
  EXPECT_TRUE(hands.asked) << "counted anew";
  pin_one(hands, 500 * kUs);
  EXPECT_FALSE(hands.asked);
}

TEST(GrowthRest, one_long_registration_is_enough) {
  Hands hands = touched(resting());
  pin_one(hands, 2 * kMs);
  EXPECT_FALSE(hands.asked);
}

TEST(GrowthRest, is_longer_where_even_the_shortest_registration_is_long) {
  ProvisionSpec spec = resting();
  spec.first_piece = spec.granule;
  spec.pin_deadline = kNever;
  Hands hands = touched(spec);
  pin_one(hands, 10 * kMs);
  EXPECT_EQ(hands.out.wakeup, hands.now + 40 * kMs);
}

TEST(GrowthRest, one_that_failed_took_its_time_too) {
  Hands hands = touched(resting());
  hands.grant();
  hands.end_pin(2 * kMs, true);
  EXPECT_FALSE(hands.asked);
  hands.now += 50 * kUs;
  hands.on(ProvisionEvent::tick);
  EXPECT_TRUE(hands.asked);
}

TEST(GrowthRest, what_came_by_itself_counts) {
  Hands hands = touched(resting());
  pin_one(hands, 1900 * kUs);
  hands.now += 50 * kUs;  // the token came late
  pin_one(hands, 1900 * kUs);
  EXPECT_TRUE(hands.asked);
  hands.now += 49 * kUs;
  pin_one(hands, 1900 * kUs);
  EXPECT_FALSE(hands.asked);
}

TEST(GrowthRest, nothing_of_it_is_left_when_there_is_nothing_to_register) {
  ProvisionSpec spec = resting();
  spec.touchers = 1;
  Hands hands(spec);
  hands.placed(8 * kMiB);
  hands.touch_one();
  pin_one(hands, 2 * kMs);
  EXPECT_FALSE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, kNever) << "nobody is held up";
  hands.touch_one(kMs);
  EXPECT_TRUE(hands.asked);
}

TEST(GrowthRest, none_is_none) {
  Hands hands = touched(resting(0));
  for (int i = 0; i < 20; ++i) {
    pin_one(hands, 500 * kUs);
    EXPECT_TRUE(hands.asked) << i;
  }
}

TEST(GrowthRest, counts_in_what_registration_supplies) {
  Hands hands = touched(resting(500 * kUs, kMs));
  for (int i = 0; i < 4; ++i) {
    if (!hands.asked) {
      hands.now += 500 * kUs;
      hands.on(ProvisionEvent::tick);
    }
    pin_one(hands, 500 * kUs);
  }
  // Four in 2 ms, and the one rest between them; that behind them is not over. Before them the turn was waited for
  // while 63 pieces were touched in 63 ms, of which half has faded.
  constexpr double turn = 63e-3 / 2;
  EXPECT_NEAR(hands.state().figures.pin, 16 * kMiB / (turn + 2.5e-3), 1);
  hands.now += 700 * kUs;
  hands.on(ProvisionEvent::tick);  // late, as a thread may be
  pin_one(hands, 300 * kUs);
  EXPECT_NEAR(hands.state().figures.pin, 20 * kMiB / (turn + 3.5e-3), 1);
}

TEST(GrowthRest, holds_nobody_up_who_waits_for_a_copy) {
  ProvisionSpec spec = resting();
  spec.beside = Beside::pause;
  Hands hands(spec);
  hands.touch_all();
  hands.grant();
  hands.on(ProvisionEvent::copy_begun);
  hands.end_pin(2 * kMs);
  EXPECT_FALSE(hands.asked);
  EXPECT_EQ(hands.out.wakeup, kNever) << "the end of the copy says when";
  const double pin = hands.state().figures.pin;
  hands.now += kMs;
  hands.on(ProvisionEvent::copy_ended, 0, kMiB, kMs);
  EXPECT_TRUE(hands.asked);
  EXPECT_EQ(hands.state().figures.pin, pin);
}

TEST(GrowthRest, cannot_be_negative) {
  EXPECT_THROW(Provisioner{resting(-1)}, std::logic_error);
  EXPECT_THROW(Provisioner{resting(1, -1)}, std::logic_error);
}

}  // namespace
}  // namespace ebb::policy
