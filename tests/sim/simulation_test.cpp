#include "sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "sim/bound.hpp"
#include "sim/random.hpp"
#include "tests/sim/random_run.hpp"

namespace ebb::sim {
namespace {

constexpr Bytes kMiB = 1 << 20;

Options with(bool verify, bool record) {
  Options out;
  out.verify = verify;
  out.record = record;
  return out;
}
const Options kVerified = with(true, false), kRecorded = with(false, true);

double seconds(Time t) { return static_cast<double>(t) * 1e-9; }

TEST(Simulation, AWriteThatHitsCostsItsCopy) {
  const MachineModel m = make_machine(64 * kMiB, 0, 0, {.copy = 1 << 30});
  const Result r = run(m, {{.ops = {op::checkpoint(1, 4 * kMiB), op::restore(1)}}}, kVerified);
  ASSERT_EQ(r.calls.size(), 2u);
  EXPECT_EQ(r.calls[0].blocked(), kSecond / 256);
  EXPECT_EQ(r.calls[1].blocked(), kSecond / 256);
  EXPECT_EQ(r.calls[1].found_on, 0);
}

TEST(Simulation, RefusalsComeByName) {
  const MachineModel m = make_machine(8 * kMiB, 0, 0);
  const Result r =
      run(m, {{.ops = {op::checkpoint(1, 4 * kMiB), op::checkpoint(1, 4 * kMiB), op::checkpoint(2, 9 * kMiB),
                       op::checkpoint(3, 8 * kMiB), op::restore(9), op::restore(1), op::restore(1)}}});
  std::vector<planner::Reason> reasons;
  for (const Call& c : r.calls) reasons.push_back(c.reason);
  using enum planner::Reason;
  EXPECT_EQ(reasons, (std::vector{ok, version_exists, too_large, no_space, unknown_version, ok, consumed}));
}

// A GPU that writes, one that lends memory and does nothing else, and the host, over a link of 50 GB/s from each
// (docs/design/peers.md).
MachineModel with_idle_peer(Bytes chunk) {
  constexpr std::uint64_t kPcie = 50'000'000'000;
  planner::Machine planner;
  planner.tiers.push_back({.name = "device", .medium = planner::Medium::device, .capacity = 1024 * kMiB});
  planner.tiers.push_back({.name = "peer", .medium = planner::Medium::device});
  planner.tiers.push_back({.name = "host", .medium = planner::Medium::host, .capacity = 16384 * kMiB});
  planner::connect(planner);
  planner.nodes[static_cast<std::size_t>(planner.tiers[1].node)].staging = 4;
  for (planner::LinkSpec& link : planner.links) {
    link.chunk = chunk;
    const bool host = link.from == planner::kHost || link.to == planner::kHost;
    link.bytes_per_s = host ? kPcie : 8.0 * kPcie;
  }
  MachineModel out = model_of(planner);
  out.groups = {{kPcie, false}, {kPcie, false}};  // the GPU's own link, down and up
  for (const auto& [name, group] : {std::pair{"app>host", 0}, {"device>host", 0}, {"host>app", 1}, {"host>device", 1}})
    out.link(name).groups = {group};
  return out;
}

// Three ranks, each of which writes over its own GPU and over the one that lends to it.
TEST(Simulation, TheLendersTrafficSharesItsGroups) {
  MachineModel machine = make_machine(1024 * kMiB, 0, 0, {.copy = 1000 * kMiB});
  machine.groups = {{.bytes_per_s = 100 * kMiB, .of_node = false}, {.of_lender = 0}};
  machine.link("app>device").groups = {0, 1};
  const auto took = [&](const std::vector<int>& lenders) {
    machine.lenders.clear();
    for (const int lender : lenders) machine.lenders.push_back({lender});
    const std::vector<Program> writes(1, {.ops = {op::checkpoint(1, 100 * kMiB)}});
    std::vector<double> out;
    for (const Call& call : run_ranks(machine, {writes, writes, writes}).calls)
      out.push_back(std::round(1000 * seconds(call.ended)) / 1000);
    return out;
  };
  EXPECT_EQ(took({3, 4, 5}), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(took({1, 3, 4}), (std::vector<double>{2, 2, 1}));
  EXPECT_EQ(took({1, 2, 0}), (std::vector<double>{2, 2, 2}));
  EXPECT_THROW(took({1, 2}), std::invalid_argument);
  EXPECT_THROW(took({1, 2, 2}), std::invalid_argument);
}

// Bytes go over both GPUs' links to the host and back: by chunk, through a ring in lent memory that has room for no
// checkpoint; and as checkpoints, which wait in it.
TEST(Simulation, AnIdlePeersLinkCarriesAsMuchAsTheOwn) {
  constexpr Version kCheckpoints = 64;
  const auto took = [](Bytes lent, Bytes chunk, bool relays) {
    Program program;
    if (lent > 0) program.ops.push_back(op::lend(1, 1, lent, 1, relays));
    for (Version v = 0; v < kCheckpoints; ++v) program.ops.push_back(op::checkpoint(v, 128 * kMiB));
    program.ops.push_back(op::wait_all(2));
    std::vector<Version> order;
    for (Version v = kCheckpoints; v-- > 0;) order.push_back(v);
    program.ops.push_back(op::hint(order));
    for (const Version v : order) program.ops.push_back(op::restore(v));
    const Result r = run(with_idle_peer(chunk), {program}, kVerified);
    const Call &written = r.calls.at(kCheckpoints), &read = r.calls.back();
    for (const Call& call : r.calls) EXPECT_EQ(call.reason, planner::Reason::ok);
    EXPECT_EQ(r.ranks[0].counters.relayed > 0, relays);
    return std::pair{seconds(written.ended), seconds(read.ended - written.ended)};
  };
  const auto [written, read] = took(0, 16 * kMiB, false);
  for (const auto& [lent, chunk, relays] :
       {std::tuple{64 * kMiB, kMiB, true}, {1024 * kMiB, 16 * kMiB, true}, {1024 * kMiB, 16 * kMiB, false}}) {
    const auto [down, up] = took(lent, chunk, relays);
    EXPECT_GE(written, 1.8 * down);
    EXPECT_GE(read, 1.8 * up);
  }
}

// Each of three lenders has a ring and a link of its own.
TEST(Simulation, TheLinksOfAllIdlePeersCarryAtOnce) {
  const auto took = [](planner::PartyId lenders) {
    Program program;
    for (planner::PartyId lender = 1; lender <= lenders; ++lender)
      program.ops.push_back(op::lend(1, static_cast<planner::SegmentId>(lender), 16 * kMiB, lender, true));
    for (Version v = 0; v < 64; ++v) program.ops.push_back(op::checkpoint(v, 128 * kMiB));
    program.ops.push_back(op::wait_all(2));
    std::vector<Version> order;
    for (Version v = 64; v-- > 0;) order.push_back(v);
    program.ops.push_back(op::hint(order));
    for (const Version v : order) program.ops.push_back(op::restore(v));
    const Result r = run(with_idle_peer(2 * kMiB), {program}, kVerified);
    for (const Call& call : r.calls) EXPECT_EQ(call.reason, planner::Reason::ok);
    const Call &written = r.calls.at(64), &read = r.calls.back();
    return std::pair{seconds(written.ended), seconds(read.ended - written.ended)};
  };
  const auto [written, read] = took(0);
  const auto [down, up] = took(3);
  EXPECT_GE(written, 3.3 * down);
  EXPECT_GE(read, 2.5 * up);
}

// Feeds the events of `steps` to a new planner; the first step (from 0) whose commands differ, or -1.
std::ptrdiff_t first_difference(const planner::Machine& machine, const std::vector<Step>& steps) {
  planner::Planner planner(machine);
  planner::Output out;
  auto same = [](const planner::Command& a, const planner::Command& b) {
    return a.id == b.id && a.link == b.link && a.checkpoint == b.checkpoint && a.request == b.request &&
           a.offset == b.offset && a.length == b.length && a.total == b.total && a.from.at == b.from.at &&
           a.from.offset == b.from.offset && a.to.at == b.to.at && a.to.offset == b.to.offset;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out.clear();
    planner.on(steps[i].event, out);
    if (!std::equal(out.commands.begin(), out.commands.end(), steps[i].output.commands.begin(),
                    steps[i].output.commands.end(), same))
      return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

TEST(Simulation, TheSameSeedGivesTheSameRunAndAReplayTheSameCommands) {
  for (std::uint64_t seed : {3, 11, 26}) {
    testing::RandomCase c = testing::random_case(seed);
    c.options.record = true;
    c.options.check_every = 0;
    const Result a = run(c.machine, c.programs, c.options), b = run(c.machine, c.programs, c.options);
    EXPECT_EQ(a.makespan, b.makespan);
    EXPECT_EQ(a.events, b.events);
    ASSERT_EQ(a.calls.size(), b.calls.size());
    for (std::size_t i = 0; i < a.calls.size(); ++i) EXPECT_EQ(a.calls[i].ended, b.calls[i].ended);
    EXPECT_EQ(first_difference(c.machine.planner, a.ranks[0].steps), -1);
    EXPECT_EQ(first_difference(c.machine.planner, b.ranks[0].steps), -1);
  }
}

TEST(Simulation, AReplayNoticesAnotherMachine) {
  const MachineModel m = make_machine(8 * kMiB, 8 * kMiB, 0);
  Shot shot = Shot::equal(4, 4 * kMiB);
  const Result r = run(m, {program_of(shot, 1)}, kRecorded);
  planner::Machine other = m.planner;
  other.tiers[0].capacity = 4 * kMiB;
  EXPECT_GE(first_difference(other, r.ranks[0].steps), 0);
}

TEST(Simulation, RanksShareTheDiskAndKeepInStep) {
  const MachineModel m = make_machine(8 * kMiB, 0, 512 * kMiB,
                                      {.copy = 8'000'000'000, .file_write = 100'000'000, .file_read = 100'000'000});
  Shot shot = Shot::equal(16, 4 * kMiB);
  shot.barriers = true;
  const Result one = run_ranks(m, {{program_of(shot, 1)}}, kVerified);
  const Result two = run_ranks(m, {{program_of(shot, 1)}, {program_of(shot, 1)}}, kVerified);
  EXPECT_GT(seconds(two.makespan), 1.7 * seconds(one.makespan));
  EXPECT_LT(seconds(two.makespan), 2.1 * seconds(one.makespan));
}

// The papers' shot on host memory, at both intervals and in every order: at least the strict bound, and with rates that
// the planner knows at most 5% of (intervals + bound) above the other one.
TEST(Simulation, ShotsStayNearTheBound) {
  for (const Time interval : {2'000'000, 20'000'000})
    for (const auto order : {Shot::Order::reverse, Shot::Order::sequential, Shot::Order::irregular}) {
      const MachineModel m = make_machine(64 * kMiB, 256 * kMiB, 4096 * kMiB);
      Shot shot = Shot::equal(128, 16 * kMiB);
      shot.interval = interval;
      shot.order = order;
      const Program program = program_of(shot, 2);
      const Bound least = bound(bound_machine(m), program), strict = bound(bound_machine(m, true), program);
      const double pass = 128 * seconds(interval);
      EXPECT_NEAR(least.blocked_s, closed_form_s(bound_machine(m), 128, 16.0 * kMiB, pass), 1e-9);
      const Result r = run(m, {program}, kVerified);
      EXPECT_GE(seconds(r.blocked()), strict.overlapped_s - 1e-6);
      EXPECT_LE(seconds(r.blocked()) - least.blocked_s, 0.05 * (2 * pass + least.blocked_s));
    }
}

// However fast the disk is: replicas that a faster tier still has displace nothing that would have to be read again.
TEST(Simulation, WhatIsFlushedAheadOfNeedIsNotReadAgain) {
  MachineModel m = make_machine(32 * 8 * kMiB, 256 * 8 * kMiB, Bytes{4} << 30,
                                {.copy = 1'000'000'000'000,
                                 .device_host = 55'000'000'000,
                                 .file_write = 5'000'000'000,
                                 .file_read = 2'500'000'000},
                                planner::EvictionPolicy::score, true);
  for (const Shot::Order order : {Shot::Order::reverse, Shot::Order::sequential, Shot::Order::irregular})
    for (const bool wait : {false, true}) {
      Shot shot = Shot::equal(384, 8 * kMiB);
      shot.order = order;
      shot.wait = wait;
      shot.interval = 625'000;
      const Result r = run(m, {program_of(shot, 2)});
      Bytes read = 0;
      for (const LinkResult& link : r.ranks[0].links)
        if (link.name == "local>host") read = link.bytes;
      EXPECT_GE(read, 96 * 8 * kMiB);
      EXPECT_LE(read, 108 * 8 * kMiB) << static_cast<int>(order) << wait;
    }
}

// A disk that moves several transfers side by side ends them together: the planner is told one after the other, within
// microseconds, after milliseconds in which none ended.
TEST(Simulation, WhatEndsInBurstsLooksNoFasterThanItIs) {
  MachineModel m = make_machine(32 * 128 * kMiB, 256 * 128 * kMiB, 400 * 128 * kMiB,
                                {.copy = 1'000'000'000'000,
                                 .device_host = 55'000'000'000,
                                 .file_write = 3'600'000'000,
                                 .file_read = 2'700'000'000},
                                planner::EvictionPolicy::score, true);
  for (planner::LinkSpec& link : m.planner.links)
    if (!link.resources.empty()) link.depth = 8, link.window = 16'000'000;
  for (const char* name : {"host>local", "local>host"}) m.link(name).shared = true;
  for (const Shot::Order order : {Shot::Order::reverse, Shot::Order::sequential, Shot::Order::irregular})
    for (const bool wait : {false, true}) {
      Shot shot = Shot::equal(384, 128 * kMiB);
      shot.order = order;
      shot.wait = wait;
      Simulation simulation(m, {{program_of(shot, 2)}});
      Time told = 0;
      simulation.feed = [&](planner::Planner& planner, const planner::Event& event, planner::Output& out) {
        planner::Event late = event;
        late.now = told = std::max(told + 1'000, event.now);
        planner.on(late, out);
      };
      while (simulation.step()) {
      }
      const Result r = simulation.result();
      Bytes read = 0;
      for (const LinkResult& link : r.ranks[0].links)
        if (link.name == "local>host") read = link.bytes;
      EXPECT_GE(read, 96 * 128 * kMiB);
      EXPECT_LE(read, 104 * 128 * kMiB) << static_cast<int>(order) << wait;
      for (const char* name : {"host>local", "local>host"}) {
        const double real = static_cast<double>(m.link(name).bytes_per_s);
        const int link = planner::find_link(m.planner.links, name);
        EXPECT_LT(simulation.planner().use(link).estimate_bytes_per_s, 2 * real) << name;
        EXPECT_GT(simulation.planner().use(link).estimate_bytes_per_s, real / 2) << name;
      }
    }
}

TEST(Simulation, NoRunIsBelowTheStrictBound) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const MachineModel m =
        make_machine(random.between(2, 16) * kMiB, random.chance(0.5) ? random.between(4, 32) * kMiB : 0, 1024 * kMiB,
                     {.copy = random.between(1, 10) * 1'000'000'000,
                      .file_write = random.between(1, 20) * 100'000'000,
                      .file_read = random.between(1, 20) * 100'000'000,
                      .disk_shared = random.chance(0.5)});
    Shot shot;
    for (int i = 0; i < 40; ++i) shot.sizes.push_back(random.between(1, 2 * kMiB));
    shot.order = static_cast<Shot::Order>(random.below(3));
    shot.hints = static_cast<Shot::Hints>(random.below(3));
    shot.interval = static_cast<Time>(random.below(4'000'000));
    shot.wait = random.chance(0.3);
    shot.seed = seed;
    const Program program = program_of(shot, static_cast<TierIndex>(m.planner.tiers.size() - 1));
    const Result r = run(m, {program}, kVerified);
    for (const Call& c : r.calls) ASSERT_EQ(c.reason, planner::Reason::ok) << c.detail;
    EXPECT_GE(seconds(r.blocked()), bound(bound_machine(m, true), program).overlapped_s - 1e-6) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ebb::sim
