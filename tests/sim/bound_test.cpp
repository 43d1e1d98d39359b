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
  m.memory = kChunk * (tiny.fast + tiny.second);
  m.write = kChunk / tiny.down;
  m.read = kChunk / tiny.up;
  m.copy_in = m.copy_out = kChunk / tiny.copy;
  m.shared = tiny.shared;
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
  if (t.ring == 0 && t.fast + t.second < 2) t.fast = 2;  // some room to pass through
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
  int tight = 0, loose = 0, cases = 0;
  for (std::uint64_t seed = 1; cases < wanted; ++seed) {
    const TinyCase tiny = random_tiny(seed);
    const Bound b = bound(machine_of(tiny), program_of(tiny));
    const int apart = testing::best_blocked(tiny, false), over = testing::best_blocked(tiny, true);
    if (apart < 0 || over < 0) continue;  // no schedule exists, or too many
    ++cases;
    ASSERT_LE(b.blocked_s, apart + 1e-6) << "seed " << seed << ", links standing still during copies";
    ASSERT_LE(b.overlapped_s, over + 1e-6) << "seed " << seed << ", links running during copies";
    ASSERT_LE(b.overlapped_s, b.blocked_s + 1e-6);
    ASSERT_LE(over, apart) << "seed " << seed;
    tight += std::abs(b.blocked_s - apart) < 1e-6 && std::abs(b.overlapped_s - over) < 1e-6;
    loose += b.blocked_s < 0.5 * apart;
  }
  RecordProperty("tight", tight);
  RecordProperty("loose", loose);
  EXPECT_GT(tight, wanted * 3 / 10) << "a bound that is never reached proves little";
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
  const BoundMachine m{.memory = 1e9, .write = 1e9, .read = 1e9, .copy_in = 0, .copy_out = 0};
  const Bytes gig = 1'000'000'000;
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::checkpoint(2, gig)}}).blocked_s, 1);
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::drop(1), op::checkpoint(2, gig)}}).blocked_s, 0);
  EXPECT_DOUBLE_EQ(bound(m, {.ops = {op::checkpoint(1, gig), op::restore(1), op::checkpoint(2, gig)}}).blocked_s, 0);
  EXPECT_DOUBLE_EQ(
      bound(m, {.ops = {op::checkpoint(1, gig), op::checkpoint(2, gig), op::restore(2), op::restore(1)}}).blocked_s, 2);
}

TEST(JointBound, IsThatOfOneDiskForAll) {
  const BoundMachine m{.memory = 0, .write = 1e9, .read = 1e9, .copy_in = 0, .copy_out = 0};
  const Program rank{.ops = {op::checkpoint(1, 1'000'000'000)}};
  const JointBound b = joint_bound(m, {rank, rank, rank});
  EXPECT_DOUBLE_EQ(b.overlapped_s, 1 + 2 + 3);  // one after the other
  EXPECT_DOUBLE_EQ(b.makespan_s, 3);
}

}  // namespace
}  // namespace ebb::sim
