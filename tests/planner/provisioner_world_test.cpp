// Any machine, any program, any fault: provisioner_world.hpp checks the rules at every event.
#include "tests/planner/provisioner_world.hpp"

#include <gtest/gtest.h>

namespace ebb::planner {
namespace {

using Draw = std::mt19937_64;
template <typename T>
T pick(Draw& draw, std::initializer_list<T> of) {
  return *(of.begin() + static_cast<std::ptrdiff_t>(draw() % of.size()));
}

ProvisionSpec any_spec(Draw& draw, bool must_be_patient) {
  using enum UsedWhen;
  ProvisionSpec spec;
  spec.piece = pick<Bytes>(draw, {64 << 10, kMiB, 4 * kMiB});
  spec.largest_piece = spec.piece << (draw() % 5);
  spec.capacity = draw() % 20 == 0 ? draw() % 3 * 4096 : (draw() % (256 * kMiB / 4096)) * 4096;
  spec.used_when = pick(draw, {pinned, pinned, pinned, touched, always});
  spec.touchers = 1 + static_cast<int>(draw() % 4);
  spec.lead = draw() % 4 == 0 ? kAllAhead : (draw() % 64) * kMiB;
  spec.longest_pin = pick<Time>(draw, {100 * kUs, 500 * kUs, 5 * kMs});
  spec.cooldown = pick<Time>(draw, {0, 50 * kUs, 2 * kMs});
  spec.pin_deadline = must_be_patient || draw() % 2 ? 1 + static_cast<Time>(draw() % (20 * kMs)) : kNever;
  return spec;
}

class ProvisionerWorlds : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ProvisionerWorlds, keep_every_rule) {
  for (std::uint64_t seed = GetParam() * 1000; seed < GetParam() * 1000 + 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Draw draw(seed);
    WorldSpec spec;
    spec.touch_rate = static_cast<double>(1 + draw() % 20) * 1e9;
    spec.touch_total = spec.touch_rate * static_cast<double>(1 + draw() % 4);
    spec.copy_rate = static_cast<double>(1 + draw() % 60) * 1e9;
    spec.interference = 0.2 + 0.8 * static_cast<double>(draw() % 100) / 100;
    spec.pin_latency = static_cast<Time>(draw() % 200'000) * (draw() % 8 ? 1 : 100);
    spec.pin_rate = static_cast<double>(1 + draw() % 80) * 1e9;
    spec.noise = pick(draw, {0.0, 0.5, 5.0});
    World world(spec, seed);
    const int processes = 1 + static_cast<int>(draw() % 4);
    const bool killed = processes > 1 && draw() % 3 == 0, hung = processes > 1 && !killed && draw() % 5 == 0;
    for (int i = 0; i < processes; ++i) {
      World::Process& p = world.add(any_spec(draw, hung));
      if (draw() % 4 == 0) p.memory = draw() % (256 * kMiB);
      if (draw() % 4 == 0) p.pinnable = draw() % (128 * kMiB);
      if (draw() % 4 == 0) p.pin_faults = 0.3;
      const Bytes most = 1 + draw() % (32 * kMiB);
      world.program(p, static_cast<int>(draw() % 40), static_cast<Time>(1 + draw() % (20 * kMs)), 1 + draw() % most,
                    most);
    }
    World::Process& first = *world.processes()[0];
    first.hangs = hung;
    if (killed) world.later(static_cast<Time>(draw() % (50 * kMs)), [&] { world.kill(first); });
    world.run();
    if (testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ProvisionerWorlds, testing::Range<std::uint64_t>(0, 8));

// --- one machine, as it was measured: 128 MiB checkpoints ------------------------------------------------------------

ProvisionSpec large_host() {
  ProvisionSpec spec;
  spec.capacity = Bytes{32} << 30;
  return spec;
}

TEST(ProvisionerOnAMachine, no_registration_is_longer_than_it_may_be) {
  World world({}, 1);
  World::Process& p = world.add(large_host());
  world.program(p, 100, 5 * kMs, 128 * kMiB, 128 * kMiB);
  world.run();
  EXPECT_LE(p.longest_pin, large_host().longest_pin);
  EXPECT_GE(p.most_piece, 16 * kMiB);
}

TEST(ProvisionerOnAMachine, memory_is_there_when_a_checkpoint_comes) {
  for (const Time interval : {10 * kMs, 20 * kMs, 40 * kMs, 60 * kMs}) {
    World world({}, 1);
    World::Process& p = world.add(large_host());
    world.program(p, 200, interval, 128 * kMiB, 128 * kMiB);
    world.run();
    EXPECT_EQ(p.copies, 200);
    EXPECT_LE(p.longest_wait, 6 * kMs) << interval;  // the first
    EXPECT_LE(p.waits, 2) << interval;
    EXPECT_FALSE(p.provisioner.state().queue_late || p.provisioner.state().pin_late);
  }
}

TEST(ProvisionerOnAMachine, two_gibibytes_of_history_take_little_more_than_two) {
  for (const Time interval : {kMs, 5 * kMs, 20 * kMs}) {
    World world({}, 1);
    World::Process& p = world.add(large_host());
    world.program(p, 16, interval, 128 * kMiB, 128 * kMiB);
    world.run();
    EXPECT_GE(p.touch_next, Bytes{2} << 30);
    EXPECT_LE(p.touch_next, (Bytes{2} << 30) * 9 / 8 + 64 * kMiB) << interval;
  }
}

TEST(ProvisionerOnAMachine, a_producer_as_fast_as_it_can_be_gets_most_of_what_touching_gives) {
  World world({.interference = 0.85}, 1);
  World::Process& p = world.add(large_host());
  world.program(p, 100, 100 * kUs, 128 * kMiB, 128 * kMiB);
  world.run();
  EXPECT_GE(static_cast<double>(p.carried) / static_cast<double>(p.last_carried) * 1e9, 0.4 * 55e9);
  EXPECT_FALSE(p.provisioner.state().pin_late) << "its own registrations are waited for";
}

TEST(ProvisionerOnAMachine, cooldowns_cost_a_saturating_producer_no_more_than_their_share) {
  const auto carried_in = [](Time cooldown) {
    World world({.interference = 0.85, .pin_rate = 25e9}, 1);  // pinning is what it waits for
    ProvisionSpec spec = large_host();
    spec.cooldown = cooldown;
    World::Process& p = world.add(spec);
    world.program(p, 100, 100 * kUs, 128 * kMiB, 128 * kMiB);
    world.run();
    return static_cast<double>(p.last_carried);
  };
  const double without = carried_in(0), with = carried_in(50 * kUs);
  EXPECT_GT(with, without * 1.01);
  EXPECT_LT(with, without * 1.03);  // 0.05 of 2.15 ms
}

TEST(ProvisionerOnAMachine, eight_processes_share_one_queue) {
  World world({.touch_rate = 3e9, .touch_total = 12e9, .copy_rate = 19e9, .noise = 0.3}, 1);
  for (int i = 0; i < 8; ++i) world.program(world.add(large_host()), 50, 20 * kMs, 128 * kMiB, 128 * kMiB);
  world.run();
  for (const auto& p : world.processes()) {
    EXPECT_EQ(p->copies, 50);
    EXPECT_LE(p->longest_wait, 20 * kMs);
  }
}

// All registrations of the node are fewer than what its processes produce.
TEST(ProvisionerOnAMachine, processes_that_wait_too_long_in_the_queue_flush_as_fast_as_they_produce) {
  for (const int processes : {1, 2, 4, 6, 8, 16}) {
    for (const Time latency : {250 * kUs, 500 * kUs, 1300 * kUs}) {  // 33 GB/s of 16 MiB, and less
      if (processes == 1 && latency > kMs) continue;                 // no queue: registering itself is what is slow
      SCOPED_TRACE(std::to_string(processes) + " processes, " + std::to_string(latency / kUs) + " us");
      World world({.copy_rate = 33e9, .interference = 0.85, .pin_latency = latency}, 1);
      for (int i = 0; i < processes; ++i) {
        world.program(world.add(large_host()), 256, 20 * kMs, 128 * kMiB, 128 * kMiB);
      }
      world.run();
      for (const auto& p : world.processes()) {
        EXPECT_LE(p->last_carried, (256 * 20 + 60) * kMs);
        EXPECT_LE(p->longest_wait, 60 * kMs);
      }
    }
  }
}

// Copies of unpinned memory would make them slower still.
TEST(ProvisionerOnAMachine, a_process_alone_waits_for_its_own_registrations) {
  World world({.pin_latency = 1300 * kUs}, 1);
  World::Process& p = world.add(large_host());
  world.program(p, 100, 20 * kMs, 128 * kMiB, 128 * kMiB);
  world.run();
  EXPECT_FALSE(p.provisioner.state().pin_late || p.provisioner.state().queue_late);
  EXPECT_GE(static_cast<double>(p.carried) / static_cast<double>(p.last_carried) * 1e9, 2.5e9);
}

// Registering is slow, whatever for: another driver, memory that the host of a virtual machine has to find.
TEST(ProvisionerOnAMachine, registrations_that_take_long_hold_up_neither_the_flushes_nor_the_program) {
  for (const int processes : {1, 4}) {
    for (const Time latency : {10 * kMs, 90 * kMs, 300 * kMs}) {
      SCOPED_TRACE(std::to_string(processes) + " processes, " + std::to_string(latency / kMs) + " ms");
      World world({.pin_latency = latency}, 1);
      for (int i = 0; i < processes; ++i) {
        world.program(world.add(large_host()), 100, 20 * kMs, 128 * kMiB, 128 * kMiB);
      }
      world.run();
      for (const auto& p : world.processes()) {
        EXPECT_EQ(p->copies, 100);
        EXPECT_LE(p->longest_wait, 2 * large_host().pin_deadline + latency + 10 * kMs);
        EXPECT_LE(p->last_carried, 3000 * kMs);
        EXPECT_LE(p->pinning_took, world.now() / 4);
        EXPECT_LE(p->pinning_before_carried, p->last_carried / 4 + 2 * latency);
        EXPECT_TRUE(p->provisioner.state().pin_late || p->provisioner.state().queue_late);
      }
    }
  }
}

// One process whose memory is registered late once is not driven to unpinned copies, which make it later still.
TEST(ProvisionerOnAMachine, one_slow_registration_changes_nothing) {
  ProvisionSpec spec = large_host();
  Provisioner provisioner(spec);
  Time now = 0;
  bool slow = true;
  std::deque<ByteRange> touches;
  const auto feed = [&](ProvisionEvent event) {
    event.now = now;
    ProvisionCommands out = provisioner.on(event);
    for (;;) {
      touches.insert(touches.end(), out.touch.begin(), out.touch.end());
      if (out.take_ticket) {
        out = provisioner.on({.kind = ProvisionEvent::called, .now = now});
      } else if (out.pin) {
        const Time took = std::exchange(slow, false) ? 15 * kMs : 300 * kUs;
        now += took;
        out = provisioner.on({ProvisionEvent::pinned, now, out.pin->offset, out.pin->length, took});
      } else if (!touches.empty()) {
        const ByteRange range = touches.front();
        touches.pop_front();
        out = provisioner.on({ProvisionEvent::touched, now, range.offset, range.length});
      } else if (out.wakeup != kNever) {
        now = out.wakeup;
        out = provisioner.on({.now = now});
      } else {
        break;
      }
    }
  };
  feed({});
  for (Bytes end = 128 * kMiB; end <= 1024 * kMiB; end += 128 * kMiB) {
    now += 20 * kMs;
    feed({.kind = ProvisionEvent::produced, .length = 128 * kMiB});
    feed({.kind = ProvisionEvent::placed, .length = end});
  }
  EXPECT_FALSE(provisioner.state().pin_late);
  EXPECT_EQ(provisioner.state().pinned, provisioner.state().ready);
}

// Nothing waited for it: it is no reason to use what comes later unpinned.
TEST(ProvisionerOnAMachine, one_registration_that_takes_long_leaves_nothing_unpinned_that_comes_later) {
  World world({.pin_latency = 700 * kMs}, 1);
  World::Process& p = world.add(large_host());
  world.later(500 * kMs, [&] { world.pins_in(60 * kUs); });
  world.later(750 * kMs, [&] { world.program(p, 60, 20 * kMs, 128 * kMiB, 128 * kMiB); });
  world.run();
  EXPECT_FALSE(p.provisioner.state().pin_late || p.provisioner.state().queue_late);
}

TEST(ProvisionerOnAMachine, whoever_is_killed_first_in_the_queue_holds_up_no_other) {
  World world({}, 1);
  ProvisionSpec spec = large_host();
  spec.pin_deadline = kNever;
  World::Process& killed = world.add(spec);
  World::Process& other = world.add(spec);
  killed.hangs = true;
  world.program(other, 20, 5 * kMs, 128 * kMiB, 128 * kMiB);
  world.later(30 * kMs, [&] {
    EXPECT_EQ(other.copies, 0);
    world.kill(killed);
  });
  world.run();
  EXPECT_EQ(other.copies, 20);
}

TEST(ProvisionerOnAMachine, whoever_is_stopped_first_in_the_queue_slows_the_others_only) {
  World world({}, 1);
  World::Process& stopped = world.add(large_host());
  World::Process& other = world.add(large_host());
  stopped.hangs = true;
  world.program(other, 20, 5 * kMs, 128 * kMiB, 128 * kMiB);
  world.run();
  EXPECT_EQ(other.copies, 20);
  EXPECT_TRUE(other.provisioner.state().queue_late);
  EXPECT_EQ(other.provisioner.state().pinned, 0u);
  EXPECT_LE(other.longest_wait, 110 * kMs);
  EXPECT_EQ(other.ticks, 1u);
}

}  // namespace
}  // namespace ebb::planner
