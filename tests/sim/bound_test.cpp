#include "sim/bound.hpp"

#include <cmath>
#include <gtest/gtest.h>

#include "sim/random.hpp"
#include "sim/simulation.hpp"
#include "tests/long_form.hpp"
#include "tests/sim/exhaustive.hpp"

namespace ebb::sim {
namespace {

using testing::TinyCase;
constexpr double kChunk = 1e6;

BoundMachine machine_of(const TinyCase& tiny) {
  BoundMachine m;
  m.files.memory = kChunk * (tiny.fast + tiny.second);
  m.files.write = kChunk / tiny.down;
  m.files.read = kChunk / tiny.up;
  m.files.shared = tiny.shared;
  m.copy_in = m.copy_out = kChunk / (tiny.past == 0 ? tiny.copy : std::min(tiny.copy, tiny.past));
  // Below the fast tier.
  BoundCut& fast = m.others.emplace_back();
  fast.memory = kChunk * tiny.fast;
  fast.write = (tiny.second > 0 ? kChunk / tiny.swap : 0) + (tiny.leaps ? m.files.write : 0);
  fast.read = (tiny.second > 0 ? kChunk / tiny.swap : 0) + (tiny.leaps ? m.files.read : 0);
  if (tiny.past > 0 && tiny.second + tiny.ring > 0) fast.past_in = fast.past_out = kChunk / tiny.past;
  return m;
}

Program program_of(const TinyCase& tiny) {
  Program out;
  for (const TinyCase::Op& op : tiny.ops) {
    const auto bytes = static_cast<Bytes>(
        kChunk * (op.kind == TinyCase::Op::sleep ? 0 : tiny.chunks[static_cast<std::size_t>(op.version)]));
    if (op.kind == TinyCase::Op::sleep)
      out.ops.push_back(op::sleep(op.ticks * kSecond));
    else if (op.kind == TinyCase::Op::write)
      out.ops.push_back(op::checkpoint(op.version, bytes));
    else
      out.ops.push_back(op::restore(op.version, op.keep));
  }
  return out;
}

TinyCase random_tiny(std::uint64_t seed) {
  Random random(seed);
  TinyCase t;
  t.fast = static_cast<int>(random.below(3));
  t.second = random.chance(0.4) ? static_cast<int>(random.between(1, 2)) : 0;
  t.ring = static_cast<int>(random.between(t.fast + t.second == 0 ? 1 : 0, 2));
  t.copy = static_cast<int>(random.between(1, 2));
  t.swap = static_cast<int>(random.between(1, 2));
  t.down = static_cast<int>(random.between(1, 4));
  t.up = static_cast<int>(random.between(1, 4));
  t.shared = random.chance(0.3);
  t.past = t.copy;
  if (t.ring == 0 && t.fast + t.second < 2) t.fast = 2;  // some room to pass through
  if (t.fast > 0 && random.chance(0.5)) t.past = random.chance(0.4) ? 0 : static_cast<int>(random.between(t.copy, 4));
  if (random.chance(0.4)) {  // the way between the caches is what takes long
    t.fast = 1;
    t.second = static_cast<int>(random.between(2, 3));
    t.copy = 1;
    t.past = random.chance(0.5) ? 0 : static_cast<int>(random.between(1, 4));
    t.swap = static_cast<int>(random.between(2, 4));
    t.leaps = random.chance(0.2);
  }
  const int n = static_cast<int>(random.between(2, 4));
  int left = random.chance(0.1) ? 5 : 4;
  for (int v = 0; v < n; ++v) {
    const int size = std::min<int>(left - (n - 1 - v), static_cast<int>(random.between(1, random.chance(0.3) ? 2 : 1)));
    t.chunks.push_back(size);
    left -= size;
  }
  auto pause = [&] {
    if (const int ticks = static_cast<int>(random.below(4))) t.ops.push_back({TinyCase::Op::sleep, 0, ticks, false});
  };
  // Any interleaving in which what is read was written; some are read twice, some never.
  std::vector<int> there;
  int next = 0;
  const bool phases = random.chance(0.5);
  while (next < n || !there.empty()) {
    pause();
    const bool write = next < n && (there.empty() || phases || random.chance(0.6));
    if (write) {
      there.push_back(next);
      t.ops.push_back({TinyCase::Op::write, next++, 0, false});
      continue;
    }
    if (random.chance(0.1)) break;
    const std::size_t i = random.below(there.size());
    const bool keep = random.chance(0.1);
    t.ops.push_back({TinyCase::Op::read, there[i], 0, keep});
    if (!keep) there.erase(there.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return t;
}

// Seven faults put into the bound, one at a time, were found within 160 cases or not within 1000.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCases = 100, kLongCases = 100;
#else
constexpr int kCases = 250, kLongCases = 1000;
#endif

TEST(Bound, IsNeverAboveTheBestOfAllSchedules) {
  const int wanted = long_form() ? kLongCases : kCases;
  int tight = 0, loose = 0, cases = 0, caches = 0;
  for (std::uint64_t seed = 1; cases < wanted; ++seed) {
    const TinyCase tiny = random_tiny(seed);
    const BoundMachine machine = machine_of(tiny);
    const Bound b = bound(machine, program_of(tiny));
    const int apart = testing::best_blocked(tiny, false), over = testing::best_blocked(tiny, true);
    if (apart < 0 || over < 0) continue;  // no schedule exists, or too many
    ++cases;
    ASSERT_LE(b.blocked_s, apart + 1e-6) << "seed " << seed << ", links standing still during copies";
    ASSERT_LE(b.overlapped_s, over + 1e-6) << "seed " << seed << ", links running during copies";
    ASSERT_LE(b.overlapped_s, b.blocked_s + 1e-6);
    ASSERT_LE(over, apart) << "seed " << seed;
    tight += std::abs(b.blocked_s - apart) < 1e-6 && std::abs(b.overlapped_s - over) < 1e-6;
    loose += b.blocked_s < 0.5 * apart;
    BoundMachine files = machine;
    files.others.clear();
    const Bound less = bound(files, program_of(tiny));
    caches += (b.blocked_s > less.blocked_s + 1e-6 && b.blocked_s > apart - 1e-6) ||
              (b.overlapped_s > less.overlapped_s + 1e-6 && b.overlapped_s > over - 1e-6);
  }
  RecordProperty("tight", tight);
  RecordProperty("loose", loose);
  EXPECT_GT(tight, wanted * 3 / 10) << "a bound that is never reached proves little";
  RecordProperty("caches", caches);
  EXPECT_GT(caches, wanted / 200) << "the cut between the caches hardly ever decided";
}

// Equal sizes, all hints, exclusive caches: 2 n copy + max(0, D/w - T) + max(0, D/r - T).
TEST(Bound, EqualsTheClosedFormForEqualSizes) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const auto rate = [&] { return random.between(1, 40) * 100'000'000; };
    const MachineModel machine = make_machine(random.between(1, 20) << 20, random.between(1, 40) << 20, 1 << 30,
                                              {.copy = rate(), .file_write = rate(), .file_read = rate()});
    Shot shot = Shot::equal(random.between(1, 60), random.between(1, 2 << 20));
    shot.order = static_cast<Shot::Order>(random.below(3));
    shot.interval = static_cast<Time>(random.below(4'000'000));
    shot.wait = random.chance(0.3);
    const BoundMachine m = bound_machine(machine);
    const double pass = static_cast<double>(shot.interval) * 1e-9 * static_cast<double>(shot.sizes.size());
    const Bound b = bound(m, program_of(shot, 2));
    EXPECT_NEAR(b.blocked_s, closed_form_s(m, shot.sizes.size(), static_cast<double>(shot.sizes[0]), pass), 1e-9)
        << "seed " << seed;
    EXPECT_NEAR(b.checkpoint_s + b.restore_s, b.blocked_s, 1e-9);
    EXPECT_LE(b.overlapped_s, b.blocked_s + 1e-12);
    EXPECT_GE(b.overlapped_s, b.copies_s - 1e-12);
  }
}

TEST(Bound, CountsWhatIsDroppedOrReadBetweenWritesAsGone) {
  const BoundMachine m{.files = {.memory = 1e9, .write = 1e9, .read = 1e9}, .others = {}};
  const Bytes gig = 1'000'000'000;
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::checkpoint(2, gig)}}).blocked_s, 1);
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::drop(1), op::checkpoint(2, gig)}}).blocked_s, 0);
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::restore(1), op::checkpoint(2, gig)}}).blocked_s, 0);
  EXPECT_DOUBLE_EQ(
      bound(m, {.ops = {op::checkpoint(1, gig), op::checkpoint(2, gig), op::restore(2), op::restore(1)}}).blocked_s, 2);
}

// 48 GiB over 4 GiB on a GPU and 60 GiB on the host, over one bus that moves 19 GB/s down and 32 GB/s up.
TEST(Bound, CountsTheCutBetweenTheCaches) {
  const Shot shot = [] {
    Shot out = Shot::equal(384, 128 << 20);
    out.interval = 2'000'000;
    return out;
  }();
  const auto machine = [](bool bus) {
    MachineModel out = make_machine(Bytes{4} << 30, Bytes{60} << 30, Bytes{1} << 40, {.copy = 1'850'000'000'000});
    for (const char* down : {"app>host", "device>host"}) out.link(down).bytes_per_s = 19'000'000'000;
    for (const char* up : {"host>app", "host>device"}) out.link(up).bytes_per_s = 32'000'000'000;
    if (bus) {
      out.groups.insert(out.groups.end(), 2, {.bytes_per_s = 0, .of_node = false});
      const int last = static_cast<int>(out.groups.size()) - 1;
      for (const char* down : {"app>host", "device>host"}) out.link(down).groups = {last - 1};
      for (const char* up : {"host>app", "host>device"}) out.link(up).groups = {last};
    }
    return out;
  };
  const Program program = program_of(shot, 2);
  const BoundMachine m = bound_machine(machine(true));
  Program writes = program;
  std::erase_if(writes.ops, [](const Op& op) { return op.kind == Op::Kind::restore; });
  EXPECT_NEAR(bound(m, writes).overlapped_s, 1.72, 0.005);
  EXPECT_NEAR(bound(m, program).overlapped_s - bound(m, writes).overlapped_s, 0.71, 0.005);
  const Bound b = bound(m, program);
  EXPECT_NEAR(b.copies_s, 0.06, 0.005);
  EXPECT_NEAR(b.checkpoint_s - b.copies_s / 2, 1.72, 0.02);  // a call that copies past the device saves that copy
  EXPECT_NEAR(b.restore_s - b.copies_s / 2, 0.71, 0.02);
  BoundMachine files = m;
  files.others.clear();
  EXPECT_NEAR(bound(files, program).blocked_s, 0.06, 0.005);

  // Were the application's own way to the host another one, calls could use both at once.
  const BoundMachine two = bound_machine(machine(false));
  EXPECT_NEAR(bound(two, writes).overlapped_s, 1.72 / 2, 0.005);
  EXPECT_NEAR(bound(two, program).checkpoint_s, b.checkpoint_s, 1e-9) << "links stand still while a call copies";

  // The planner in virtual time cannot do better.
  const Result ran = run(machine(true), {program});
  EXPECT_GE(static_cast<double>(ran.blocked()) * 1e-9, bound(m, program).overlapped_s);
}

// A memory of others between the device and the host: each cut has the memory above it, and the links that cross it.
TEST(Bound, EveryCutOfTheChainHasItsOwnRates) {
  planner::Machine planner;
  planner.tiers = {{.name = "device", .medium = planner::Medium::device, .capacity = 4},
                   {.name = "peer", .medium = planner::Medium::device, .capacity = 30},
                   {.name = "host", .medium = planner::Medium::host, .capacity = 200},
                   {.name = "local", .medium = planner::Medium::file, .capacity = 1000}};
  planner::connect(planner);
  MachineModel machine = model_of(planner);
  std::uint64_t bit = 1;
  for (LinkModel& link : machine.links) link.bytes_per_s = bit <<= 1;
  const auto rate = [&](std::string_view name) { return static_cast<double>(machine.link(name).bytes_per_s); };
  const BoundMachine m = bound_machine(machine);
  ASSERT_EQ(m.others.size(), 2u);
  const BoundCut &device = m.others[0], &peer = m.others[1];
  EXPECT_EQ(device.memory, 4);
  EXPECT_EQ(device.write, rate("device>peer") + rate("device>host"));
  EXPECT_EQ(device.read, rate("peer>device") + rate("host>device"));
  EXPECT_EQ(device.past_in, std::max(rate("app>peer"), rate("app>host")));
  EXPECT_EQ(peer.memory, 34);
  EXPECT_EQ(peer.write, rate("device>host") + rate("peer>host"));
  EXPECT_EQ(peer.read, rate("host>device") + rate("host>peer"));
  EXPECT_EQ(peer.past_out, rate("host>app"));
  EXPECT_EQ(m.files.memory, 234);
  EXPECT_EQ(m.files.write, rate("host>local"));
  EXPECT_EQ(m.files.past_in, 0);
  EXPECT_TRUE(m.files.shared);  // the disk's time

  // Links of several groups carry what the tightest of them let through, whichever way they are nested.
  const auto both = [&](std::uint64_t own, std::uint64_t memory) {
    machine.groups.assign({{own, false}, {own, false}, {memory, true}});
    for (LinkModel& link : machine.links) link.groups.clear();
    machine.link("device>host") = {.bytes_per_s = 50, .groups = {0, 2}};
    machine.link("peer>host") = {.bytes_per_s = 50, .groups = {1, 2}};
    return bound_machine(machine).others[1].write;
  };
  EXPECT_EQ(both(50, 1000), 100);
  EXPECT_EQ(both(30, 1000), 60);
  EXPECT_EQ(both(50, 80), 80);
  EXPECT_EQ(both(30, 40), 40);

  // Every choice of groups is tried: of so many, none is.
  machine.groups.assign(64, {100, true});
  std::vector<int>& many = machine.link("device>host").groups;
  for (int group = 0; group < 64; ++group) many.push_back(group);
  EXPECT_THROW(bound_machine(machine), std::invalid_argument);
}

TEST(JointBound, IsThatOfOneDiskForAll) {
  const BoundMachine m{.files = {.memory = 0, .write = 1e9, .read = 1e9}, .others = {}};
  const Program rank{.ops = {op::checkpoint(1, 1'000'000'000)}};
  const JointBound b = joint_bound(m, {rank, rank, rank});
  EXPECT_DOUBLE_EQ(b.overlapped_s, 1 + 2 + 3);  // one after the other
  EXPECT_DOUBLE_EQ(b.makespan_s, 3);
}

}  // namespace
}  // namespace ebb::sim
