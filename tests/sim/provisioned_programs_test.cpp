// Programs over memory that is provisioned while they run. The simulation itself refuses a command into memory that is
// not ready yet.
#include <algorithm>
#include <gtest/gtest.h>

#include "sim/bound.hpp"
#include "sim/random.hpp"
#include "tests/sim/random_run.hpp"

namespace ebb::sim {
namespace {

using planner::Medium;

constexpr Bytes kMiB = 1 << 20;

// Every tier in memory, by pieces so small that a tier has many; some of it is used unpinned.
void provision(MachineModel& machine, std::uint64_t seed) {
  Random random(mixed(seed));
  for (std::size_t t = 0; t < machine.planner.tiers.size(); ++t) {
    const planner::TierSpec& tier = machine.planner.tiers[t];
    if (tier.medium == Medium::file) continue;
    ProvisionModel model;
    model.tier = static_cast<TierIndex>(t);
    model.touch_bytes_per_s = random.between(1, 200) * 10'000'000;
    model.pin_bytes_per_s = random.between(1, 200) * 10'000'000;
    model.pin_latency = static_cast<Time>(random.below(100'000));
    model.spec.touchers = static_cast<int>(random.between(1, 6));
    model.spec.piece = std::max<Bytes>(tier.capacity / random.between(1, 40), 1);
    model.spec.largest_piece = model.spec.piece * random.between(1, 8);
    model.spec.lead = random.chance(0.2) ? planner::kAllAhead : random.below(tier.capacity);
    model.spec.pin_deadline = random.chance(0.5) ? 100'000'000 : static_cast<Time>(random.between(1, 1'000'000));
    machine.provisioned.push_back(model);
  }
}

TEST(ProvisionedPrograms, KeepEveryPromise) {
  std::uint64_t events = 0, waited = 0, of_the_call = 0;
  for (std::uint64_t seed = 500'001; events < 100'000 && !HasFatalFailure(); ++seed) {
    testing::RandomCase c = testing::random_case(seed);
    provision(c.machine, seed);
    c.timely = false;  // its calls wait for memory too
    try {
      events += testing::run_checked(c).events;
      const Result result = run(c.machine, c.programs, c.options);
      for (const MemoryResult& memory : result.ranks[0].memories) waited += memory.waited > 0;
      for (const Call& call : result.calls) of_the_call += call.kind == Op::Kind::reserve && call.blocked() > 0;
    } catch (const std::exception& e) {
      FAIL() << "seed " << seed << ": " << e.what() << "\n" << testing::describe(c);
    }
  }
  EXPECT_GT(waited, 50u);
  EXPECT_GT(of_the_call, 10u);
}

// Where the host cache holds the history. Where something has to leave it, a program that was held up may do
// better, for other checkpoints are evicted: there a run is no faster than the bound.
TEST(ProvisionedPrograms, AreNeverFasterThanWithAllMemoryThere) {
  int later = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const Bytes device = random.between(2, 16) * kMiB, host = random.between(4, 32) * kMiB;
    const bool holds = seed % 2 == 0;
    MachineModel m = make_machine(random.chance(0.5) ? device : 0, holds ? 80 * kMiB + host : host, 1024 * kMiB,
                                  {.copy = random.between(1, 10) * 1'000'000'000,
                                   .file_write = random.between(1, 20) * 100'000'000,
                                   .file_read = random.between(1, 20) * 100'000'000});
    Shot shot;
    for (int i = 0; i < 40; ++i) shot.sizes.push_back(random.between(1, 2 * kMiB));
    shot.order = static_cast<Shot::Order>(random.below(3));
    shot.hints = static_cast<Shot::Hints>(random.below(3));
    shot.interval = static_cast<Time>(random.below(4'000'000));
    shot.wait = random.chance(0.3);
    shot.seed = seed;
    const Program program = program_of(shot, static_cast<TierIndex>(m.planner.tiers.size() - 1));
    Options options;
    options.verify = true;
    const Result at_once = run(m, {program}, options);
    provision(m, seed);
    const Result result = run(m, {program}, options);
    for (const Call& c : result.calls) ASSERT_EQ(c.reason, planner::Reason::ok) << c.detail;
    if (holds) {
      EXPECT_GE(result.makespan, at_once.makespan) << "seed " << seed;
    }
    EXPECT_GE(static_cast<double>(result.blocked()) * 1e-9, bound(bound_machine(m, true), program).overlapped_s - 1e-6);
    later += result.makespan > at_once.makespan;
  }
  EXPECT_GT(later, 100);
}

// To the nanosecond: the page's touching, its registration, the copy.
TEST(ProvisionedPrograms, WaitForWhatTheyWriteAndNoMore) {
  MachineModel m = make_machine(0, 32 * kMiB, 0, {.copy = 1 << 30});
  ProvisionModel model{.touch_bytes_per_s = 1 << 30, .pin_bytes_per_s = 1 << 30, .pin_latency = 5'000};
  model.spec.touchers = 1;
  model.spec.piece = model.spec.largest_piece = 4 * kMiB;
  model.spec.pin_deadline = kSecond;
  m.provisioned.push_back(model);
  const Time piece = kSecond / 256, ready = piece + 1 + 5'000 + piece + 1;
  const Result r = run(m, {{.ops = {op::checkpoint(1, 4 * kMiB), op::sleep(kSecond), op::checkpoint(2, 4 * kMiB)}}});
  ASSERT_EQ(r.calls.size(), 2u);
  EXPECT_EQ(r.calls[0].blocked(), ready + piece);
  EXPECT_EQ(r.calls[1].blocked(), piece) << "it was there ahead";
  const MemoryResult& memory = r.ranks[0].memories.at(0);
  EXPECT_EQ(memory.waited, ready);
  EXPECT_EQ(memory.ready, 32 * kMiB) << "touched ahead";
  EXPECT_LT(memory.ready_at, kSecond);
  const Result two = run_ranks(m, {{{.ops = {op::checkpoint(1, 4 * kMiB)}}}, {{.ops = {op::checkpoint(1, 4 * kMiB)}}}});
  EXPECT_EQ(two.calls[0].blocked(), ready + piece);
  EXPECT_EQ(two.calls[1].blocked(), ready + 5'000 + piece + 1 + piece) << "ranks of a node pin in turn";
}

}  // namespace
}  // namespace ebb::sim
