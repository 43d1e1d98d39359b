// One rule at a time, by hand. All of them on any machine: provisioner_world_test.cpp.
#include "planner/provisioner.hpp"

#include <gtest/gtest.h>
#include <stdexcept>

#include "units.hpp"

namespace ebb::planner {
namespace {

using Kind = ProvisionEvent::Kind;
using Ranges = std::vector<ByteRange>;

/// A provisioner and what it has commanded that was not answered.
struct Hands {
  explicit Hands(const ProvisionSpec& spec) : provisioner(spec) { on({}); }
  void on(ProvisionEvent event) {
    event.now = now;
    out = provisioner.on(event);
    touches.insert(touches.end(), out.touch.begin(), out.touch.end());
    ticket = ticket || out.take_ticket;
    if (out.pin) pin = out.pin;
  }
  void placed(Bytes end) { on({.kind = Kind::placed, .length = end}); }
  void produced(Bytes bytes) { on({.kind = Kind::produced, .length = bytes}); }
  void tick(Time later) {
    now += later;
    on({});
  }
  void touch(bool failed = false) {
    const ByteRange range = touches.at(0);
    touches.erase(touches.begin());
    on({failed ? Kind::touch_failed : Kind::touched, 0, range.offset, range.length});
  }
  void touch_all() {
    while (!touches.empty()) touch();
  }
  void call(Time waited = 0) {
    ASSERT_TRUE(ticket);
    ticket = false;
    now += waited;
    on({.kind = Kind::called});
  }
  void end_pin(Kind how, Time took) {
    ASSERT_TRUE(pin);
    const ByteRange range = *pin;
    pin.reset();
    now += took;
    on({how, 0, range.offset, range.length, took});
  }
  // The registration that comes next, of so many bytes.
  void pins(Bytes length, Time took, Time waited = 0) {
    call(waited);
    ASSERT_TRUE(pin);
    EXPECT_EQ(pin->length, length);
    end_pin(Kind::pinned, took);
  }
  // Whatever there is to do, until nothing is.
  void settle() {
    while (ticket || !touches.empty() || out.wakeup != kNever) {
      touch_all();
      if (ticket) {
        call();
        if (pin) end_pin(Kind::pinned, 200 * kUs);
      } else if (out.wakeup != kNever) {
        tick(out.wakeup - now);
      }
    }
  }
  const ProvisionState& state() const { return provisioner.state(); }

  Provisioner provisioner;
  ProvisionCommands out;
  Time now = 0;
  Ranges touches;
  bool ticket = false;
  std::optional<ByteRange> pin;
};

ProvisionSpec small(Bytes lead = 16 * kMiB) {
  ProvisionSpec spec;
  spec.capacity = 256 * kMiB;
  spec.lead = lead;
  spec.touchers = 2;
  spec.longest_pin = 500 * kUs;
  return spec;
}

// All of it is touched and needed, none of it pinned.
Hands needed(ProvisionSpec spec = small(kAllAhead)) {
  Hands hands(spec);
  hands.touch_all();
  hands.placed(spec.capacity);
  return hands;
}

// The same, and in use: the queue took too long.
Hands in_use(ProvisionSpec spec = small(kAllAhead)) {
  spec.largest_piece = spec.piece = 8 * kMiB;
  spec.capacity = 32 * kMiB;
  Hands hands = needed(spec);
  hands.tick(spec.pin_deadline);
  EXPECT_EQ(hands.state().ready, spec.capacity);
  EXPECT_TRUE(hands.state().queue_late);
  EXPECT_EQ(hands.state().pinned, 0u);
  return hands;
}

TEST(Provisioner, touches_two_checkpoints_ahead_by_pieces_and_its_lead_at_most) {
  Hands hands(small(64 * kMiB));
  EXPECT_EQ(hands.touches, (Ranges{{0, 4 * kMiB}, {4 * kMiB, 4 * kMiB}})) << "an eighth of the lead";
  std::swap(hands.touches[0], hands.touches[1]);
  hands.touch();
  EXPECT_EQ(hands.state().touched, 0u) << "a gap holds up what is behind it";
  EXPECT_FALSE(hands.ticket);
  hands.touch();
  EXPECT_EQ(hands.state().touched, 8 * kMiB);
  EXPECT_TRUE(hands.ticket);
  const auto goal = [&](Bytes checkpoint) {
    Hands next(small(64 * kMiB));
    next.produced(checkpoint);
    next.placed(checkpoint);
    next.touch_all();
    return next.state().touched;
  };
  EXPECT_EQ(goal(kMiB), 12 * kMiB);
  EXPECT_EQ(goal(20 * kMiB), 60 * kMiB);
  EXPECT_EQ(goal(40 * kMiB), 104 * kMiB);
  EXPECT_EQ(goal(1000 * kMiB), 256 * kMiB) << "the end of the cache";
}

TEST(Provisioner, what_is_expected_is_pinned_ahead_and_nothing_else_is_touched_for_it) {
  for (const UsedWhen when : {UsedWhen::pinned, UsedWhen::always}) {
    ProvisionSpec spec = small(64 * kMiB);
    spec.used_when = when;
    Hands hands(spec);
    hands.settle();
    EXPECT_EQ(hands.state().touched, 8 * kMiB);
    hands.on({.kind = Kind::expected, .length = 100 * kMiB});
    hands.settle();
    const bool pinned = when == UsedWhen::pinned;
    EXPECT_GE(hands.state().touched, pinned ? 100 * kMiB : 8 * kMiB);
    EXPECT_EQ(hands.state().pinned, pinned ? hands.state().touched : 0);
    EXPECT_LT(hands.state().touched, 200 * kMiB) << "no more than that, and a piece";
    EXPECT_FALSE(hands.state().queue_late || hands.state().pin_late) << "no one waits for it";
    if (!pinned) continue;
    const Bytes before = hands.state().touched;
    hands.on({.kind = Kind::expected, .length = 0});
    hands.placed(90 * kMiB);
    hands.settle();
    EXPECT_EQ(hands.state().touched, before) << "it is there for what is placed now";
  }
}

TEST(Provisioner, an_odd_end_is_touched_and_pinned_too) {
  ProvisionSpec spec = small(kAllAhead);
  spec.capacity = 9 * kMiB + 4096;
  Hands hands(spec);
  hands.settle();
  EXPECT_EQ(hands.state().pinned, 9 * kMiB + 4096);
  EXPECT_TRUE(hands.provisioner.finished());
  spec.capacity = 0;
  Hands none(spec);
  none.placed(1);
  EXPECT_TRUE(none.touches.empty() && !none.ticket && none.provisioner.finished());
}

TEST(Provisioner, pieces_double_while_that_is_expected_to_stay_short) {
  Hands hands = needed();
  const auto pin = [&](Bytes expected, Time took) {
    if (!hands.ticket) hands.tick(hands.out.wakeup - hands.now);
    hands.pins(expected, took);
  };
  pin(4 * kMiB, 250 * kUs);
  pin(8 * kMiB, 251 * kUs);
  pin(8 * kMiB, 250 * kUs);
  pin(16 * kMiB, 500 * kUs);
  pin(16 * kMiB, 501 * kUs);
  pin(8 * kMiB, 900 * kUs);
  pin(4 * kMiB, 250 * kUs);
  pin(8 * kMiB, 250 * kUs);
  pin(16 * kMiB, 2001 * kUs);
  pin(4 * kMiB, 250 * kUs);
  ProvisionSpec spec = small(kAllAhead);
  spec.largest_piece = 8 * kMiB;
  Hands bounded(spec);
  bounded.settle();
  EXPECT_EQ(bounded.state().piece, 8 * kMiB);
  EXPECT_EQ(bounded.state().pieces, 1 + 252 / 8 + 1u);
}

TEST(Provisioner, less_than_a_piece_waits_for_the_rest_of_it) {
  ProvisionSpec spec = small(0);
  Hands hands(spec);
  hands.placed(4 * kMiB);
  hands.touch();
  hands.pins(4 * kMiB, kUs);
  hands.placed(12 * kMiB);
  hands.touch();
  EXPECT_FALSE(hands.ticket);
  hands.touch();
  hands.pins(8 * kMiB, kUs);
  hands.placed(14 * kMiB);
  hands.touch();
  hands.pins(4 * kMiB, kUs);
}

TEST(Provisioner, cools_down_when_registrations_took_long_together) {
  ProvisionSpec spec = small(kAllAhead);
  spec.largest_piece = spec.piece;
  Hands hands = needed(spec);
  hands.pins(4 * kMiB, 500 * kUs);
  hands.pins(4 * kMiB, 500 * kUs);
  EXPECT_TRUE(hands.ticket) << "1 ms of them";
  hands.pins(4 * kMiB, 500 * kUs);
  EXPECT_FALSE(hands.ticket);
  EXPECT_EQ(hands.out.wakeup, hands.now + 50 * kUs);
  hands.tick(50 * kUs - 1);
  EXPECT_FALSE(hands.ticket);
  hands.tick(1);
  hands.pins(4 * kMiB, 1499 * kUs);
  hands.pins(4 * kMiB, 1499 * kUs, 50 * kUs);
  EXPECT_TRUE(hands.ticket) << "the wait for the ticket counts as one";
  hands.call(49 * kUs);
  hands.end_pin(Kind::pin_failed, kUs);
  EXPECT_TRUE(hands.state().pin_failed) << "the smallest piece";
}

TEST(Provisioner, the_second_slow_registration_in_a_row_is_followed_by_four_times_as_long) {
  Hands hands = needed();
  hands.pins(4 * kMiB, 2001 * kUs);
  EXPECT_EQ(hands.out.wakeup, hands.now + 50 * kUs) << "one alone is followed by the usual pause";
  EXPECT_EQ(hands.state().ready, 4 * kMiB) << "one alone changes nothing else";
  hands.tick(50 * kUs);
  hands.pins(4 * kMiB, 2001 * kUs);
  EXPECT_EQ(hands.out.wakeup, hands.now + 4 * 2001 * kUs);
  for (int i = 0; i < 20 && !hands.state().pin_late; ++i) {
    hands.tick(hands.out.wakeup - hands.now);
    hands.pins(4 * kMiB, 2001 * kUs);
  }
  EXPECT_TRUE(hands.state().pin_late);
  EXPECT_FALSE(hands.state().queue_late);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  EXPECT_GT(hands.now, 100 * kMs);
  EXPECT_LT(hands.now, 250 * kMs);
}

TEST(Provisioner, a_registration_that_fails_is_tried_smaller_and_then_given_up) {
  Hands hands = needed();
  hands.pins(4 * kMiB, kUs);
  hands.pins(8 * kMiB, kUs);
  for (const Bytes length : {16, 8, 4}) {
    EXPECT_FALSE(hands.state().pin_failed);
    hands.call();
    EXPECT_EQ(hands.pin, (ByteRange{12 * kMiB, length * kMiB}));
    hands.end_pin(Kind::pin_failed, kUs);
  }
  EXPECT_TRUE(hands.state().pin_failed);
  EXPECT_FALSE(hands.ticket);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  EXPECT_EQ(hands.state().pinned, 12 * kMiB);
  EXPECT_TRUE(hands.provisioner.finished());

  Hands used = needed();
  used.pins(4 * kMiB, kUs);
  used.tick(100 * kMs);
  for (const Bytes length : {8, 4}) {
    used.call();
    EXPECT_EQ(used.pin, (ByteRange{4 * kMiB, length * kMiB})) << "in use";
    used.end_pin(Kind::pin_failed, kUs);
    if (used.out.wakeup != kNever) used.tick(used.out.wakeup - used.now);
  }
  EXPECT_TRUE(used.provisioner.finished());
}

TEST(Provisioner, memory_is_used_unpinned_when_its_ticket_is_not_called_in_time) {
  ProvisionSpec spec = small(128 * kMiB);
  spec.pin_deadline = 10 * kMs;
  Hands hands(spec);
  hands.touch_all();
  EXPECT_TRUE(hands.ticket);
  EXPECT_EQ(hands.out.wakeup, kNever) << "it is not needed";
  hands.placed(3 * kMiB);
  EXPECT_EQ(hands.out.wakeup, 10 * kMs);
  hands.tick(10 * kMs - 1);
  EXPECT_EQ(hands.state().ready, 0u);
  EXPECT_EQ(hands.out.wakeup, 10 * kMs);
  hands.tick(1);
  EXPECT_EQ(hands.state().ready, 4 * kMiB) << "no more than is needed";
  hands.placed(7 * kMiB);
  hands.placed(2 * kMiB);
  EXPECT_EQ(hands.state().placed, 7 * kMiB);
  EXPECT_EQ(hands.state().ready, 8 * kMiB) << "the same ticket";
  hands.touch_all();
  hands.pins(4 * kMiB, kUs, 1000 * kMs);
  hands.placed(13 * kMiB);
  hands.touch_all();
  EXPECT_EQ(hands.state().ready, 16 * kMiB) << "pinning is behind still";
  hands.pins(8 * kMiB, kUs);
  const Bytes ready = hands.state().ready;
  hands.placed(ready + kMiB);
  EXPECT_EQ(hands.state().ready, ready) << "that was fast";
  EXPECT_TRUE(hands.state().queue_late);
  EXPECT_FALSE(hands.state().pin_late);
}

TEST(Provisioner, the_queue_may_take_as_long_as_the_program_takes_to_produce) {
  const auto waits = [](Bytes checkpoint, Time interval) {
    Hands hands(small(kAllAhead));
    for (int i = 0; i < 30; ++i, hands.now += interval) hands.produced(checkpoint);
    hands.touch_all();
    hands.call();
    hands.end_pin(Kind::pinned, kUs);
    hands.placed(256 * kMiB);
    return hands.out.wakeup - hands.now;
  };
  EXPECT_EQ(waits(64 * kMiB, 10 * kMs), 20 * kMs);  // 128 MiB
  EXPECT_EQ(waits(256 * kMiB, 80 * kMs), 40 * kMs);
  EXPECT_EQ(waits(64 * kMiB, kMs), 10 * kMs) << "unpinned copies are no faster";
  EXPECT_EQ(waits(64 * kMiB, 100 * kMs), 100 * kMs) << "no more than the deadline";
  Hands paused(small(kAllAhead));
  for (const Time later : {10 * kMs, 10 * kMs, 10'000 * kMs}) paused.now += later, paused.produced(64 * kMiB);
  paused.placed(kMiB);
  paused.touch_all();
  EXPECT_EQ(paused.out.wakeup - paused.now, 35 * kMs) << "a pause of the program is no interval";
}

TEST(Provisioner, what_is_being_pinned_is_not_used_meanwhile) {
  Hands hands = needed();
  hands.call(99 * kMs);
  hands.tick(400 * kMs);
  EXPECT_EQ(hands.state().ready, 0u);
  hands.end_pin(Kind::pinned, 400 * kMs);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
}

TEST(Provisioner, asks_for_no_wakeup_while_it_waits_for_touched_memory) {
  Hands hands(small(0));
  hands.placed(8 * kMiB);
  hands.touch_all();
  hands.pins(4 * kMiB, 100 * kUs);  // pieces of 8 MiB from now on
  hands.tick(hands.provisioner.spec().pin_deadline);
  hands.call();
  hands.end_pin(Kind::pin_busy, 0);
  hands.placed(16 * kMiB);
  hands.touch();
  hands.tick(hands.out.wakeup - hands.now);
  EXPECT_EQ(hands.out.wakeup, kNever) << "memory in use comes behind what is being touched";
  EXPECT_FALSE(hands.ticket);
  hands.touch();
  EXPECT_TRUE(hands.ticket);
}

TEST(Provisioner, memory_in_use_is_pinned_behind_all_else_and_what_is_busy_later) {
  Hands hands = in_use();
  hands.call();
  EXPECT_EQ(hands.pin, (ByteRange{0, 8 * kMiB}));
  hands.end_pin(Kind::pin_busy, 0);
  EXPECT_FALSE(hands.ticket);
  for (const Bytes offset : {8, 16, 24, 0}) {
    EXPECT_FALSE(hands.provisioner.finished());
    hands.tick(hands.out.wakeup - hands.now);
    hands.call();
    EXPECT_EQ(hands.pin, (ByteRange{offset * kMiB, 8 * kMiB}));
    hands.end_pin(Kind::pinned, 300 * kUs);
    EXPECT_TRUE(offset == 0 || hands.out.wakeup == hands.now + 16 * 300 * kUs) << "its copies wait meanwhile";
  }
  EXPECT_EQ(hands.state().pinned, 32 * kMiB);
  EXPECT_TRUE(hands.provisioner.finished());

  ProvisionSpec spec = small(0);
  Hands late(spec);
  late.placed(4 * kMiB);
  late.touch_all();
  late.tick(spec.pin_deadline);
  late.placed(16 * kMiB);
  late.touch_all();
  late.pins(4 * kMiB, kUs);
  late.tick(16 * kUs);
  late.pins(8 * kMiB, kUs);
  EXPECT_EQ(late.state().pinned, 12 * kMiB) << "what adjoins is pinned as one";

  late = Hands(spec);
  late.placed(8 * kMiB);
  late.touch_all();
  late.tick(spec.pin_deadline);
  late.pins(4 * kMiB, kUs);
  late.tick(16 * kUs);
  late.placed(16 * kMiB);
  late.touch();
  late.call();
  EXPECT_FALSE(late.pin) << "it waits for half a piece that is needed";
  late.touch();
  late.call();
  EXPECT_EQ(late.pin, (ByteRange{8 * kMiB, 8 * kMiB}));
  late.end_pin(Kind::pinned, kUs);
  late.call();
  EXPECT_EQ(late.pin, (ByteRange{4 * kMiB, 4 * kMiB}));
}

TEST(Provisioner, memory_that_runs_out_leaves_what_was_touched) {
  Hands hands(small(kAllAhead));
  hands.placed(64 * kMiB);
  hands.touch();
  std::swap(hands.touches[0], hands.touches[1]);
  hands.touch(true);  // 8 to 12 MiB
  EXPECT_EQ(hands.state().limit, 8 * kMiB);
  EXPECT_TRUE(hands.state().touch_failed && hands.state().touching);
  hands.settle();
  EXPECT_EQ(hands.state().ready, 8 * kMiB);
  EXPECT_FALSE(hands.state().touching);
  hands.placed(256 * kMiB);
  EXPECT_TRUE(hands.touches.empty());
}

TEST(Provisioner, ordinary_memory_is_ready_at_once_and_ends_before_what_there_is_none_for) {
  ProvisionSpec spec = small();
  spec.used_when = UsedWhen::always;
  Hands hands(spec);
  EXPECT_EQ(hands.state().ready, 256 * kMiB);
  hands.placed(10 * kMiB);
  hands.on({.kind = Kind::refused, .offset = 10 * kMiB});
  EXPECT_EQ(hands.state().limit, 10 * kMiB);
  EXPECT_EQ(hands.state().ready, 10 * kMiB);
  hands.touch_all();
  hands.placed(100 * kMiB);
  EXPECT_TRUE(hands.touches.empty() && hands.provisioner.finished());

  Hands touched(spec);
  touched.touch_all();
  const Bytes there = touched.state().touched;
  touched.on({.kind = Kind::refused, .offset = 0});
  EXPECT_EQ(touched.state().limit, there);
  Hands failed(spec);
  failed.placed(20 * kMiB);
  failed.touch(true);
  EXPECT_EQ(failed.state().limit, 20 * kMiB) << "it is in use, perhaps";
  failed.touch();
  EXPECT_TRUE(failed.touches.empty()) << "and is not touched";
}

TEST(Provisioner, broken_contracts_are_thrown) {
  for (auto* const broken :
       {+[](ProvisionSpec& spec) { spec.piece = 0; }, +[](ProvisionSpec& spec) { spec.touchers = 0; },
        +[](ProvisionSpec& spec) { spec.longest_pin = 0; }, +[](ProvisionSpec& spec) { spec.cooldown = -1; },
        +[](ProvisionSpec& spec) { spec.pin_deadline = 0; }}) {
    ProvisionSpec spec = small();
    broken(spec);
    EXPECT_THROW(Provisioner{spec}, std::logic_error);
  }
  Hands hands(small());
  for (const Kind kind : {Kind::called, Kind::touched, Kind::touch_failed, Kind::pinned, Kind::pin_failed,
                          Kind::pin_busy, Kind::refused}) {
    EXPECT_THROW(hands.on({kind, 0, 1, 2, 3}), std::logic_error) << kind;
  }
  hands.touch_all();
  hands.call();
  EXPECT_THROW(hands.end_pin(Kind::pin_busy, 0), std::logic_error) << "it is not in use";
  hands.now = -1;
  EXPECT_THROW(hands.on({}), std::logic_error);
}

}  // namespace
}  // namespace ebb::planner
