#include "sim/bound.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/random.hpp"
#include "sim/simulation.hpp"
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
    const auto bytes = static_cast<Bytes>(kChunk * (op.kind == TinyCase::Op::sleep ? 0 : tiny.chunks[static_cast<std::size_t>(op.version)]));
    if (op.kind == TinyCase::Op::sleep) out.ops.push_back(op::sleep(op.ticks * kSecond));
    else if (op.kind == TinyCase::Op::write) out.ops.push_back(op::checkpoint(op.version, bytes));
    else out.ops.push_back(op::restore(op.version, op.keep));
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
  int left = 5;
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

TEST(Bound, IsNeverAboveTheBestOfAllSchedules) {
  int tight = 0, loose = 0, cases = 0;
  for (std::uint64_t seed = 1; cases < 1000; ++seed) {
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
  EXPECT_GT(tight, 300) << "a bound that is never reached proves little";
}

}  // namespace
}  // namespace ebb::sim
