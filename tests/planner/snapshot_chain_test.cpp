#include "planner/snapshot_chain.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace ebb::planner {
namespace {

double naive_restore(std::span<const SnapshotSource> sources, std::uint32_t merged, Bytes dirty, const RestoreRates& r,
                     std::size_t& count, Bytes& stores) {
  double seconds = 0;
  count = 0;
  stores = dirty;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].needed == 0) continue;
    if (merged >> i & 1) {
      stores += sources[i].needed;
    } else {
      seconds += r.request_s + static_cast<double>(r.whole ? sources[i].stored : sources[i].needed) / r.bytes_s;
      ++count;
    }
  }
  if (stores > 0) seconds += r.request_s + static_cast<double>(stores) / r.bytes_s, ++count;
  return seconds;
}

std::vector<SnapshotSource> random_sources(std::mt19937_64& random, std::size_t most) {
  std::vector<SnapshotSource> sources;
  for (std::size_t i = random() % (most + 1); i-- > 0;) {
    const Bytes stored = 1 + random() % 1000;
    sources.push_back({.version = static_cast<Version>(i), .stored = stored, .needed = random() % (stored + 1)});
  }
  return sources;
}

// Against all subsets: what is chosen is within the bounds; where only needed bytes are read, nothing that stores less
// is; an increment is chosen whenever it is within them.
TEST(ChooseSnapshot, IsWithinTheBoundsAndStoresNoMoreThanItMust) {
  std::mt19937_64 random(3);
  std::map<SnapshotKind, int> kinds;
  for (int n = 0; n < 20'000; ++n) {
    const auto sources = random_sources(random, 7);
    const RestoreRates rates{.request_s = static_cast<double>(random() % 100), .bytes_s = 1, .whole = n % 2 == 1};
    const ChainBounds bounds{.restore = 1.0 + static_cast<double>(random() % 100) / 100, .sources = 1 + random() % 6};
    const Bytes dirty = random() % 3 ? random() % 500 : 0;
    const SnapshotChoice choice = choose_snapshot(sources, dirty, rates, bounds);

    std::uint32_t merged = 0;
    Bytes needed = 0;
    std::size_t parents = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      merged |= std::ranges::binary_search(choice.merged, sources[i].version) ? 1u << i : 0;
      needed += sources[i].needed;
      parents += sources[i].needed > 0;
    }
    const double full = rates.request_s + static_cast<double>(dirty + needed) / rates.bytes_s;
    std::size_t count = 0;
    Bytes stores = 0;
    const double seconds = naive_restore(sources, merged, dirty, rates, count, stores);
    SCOPED_TRACE("case " + std::to_string(n));
    EXPECT_DOUBLE_EQ(choice.full_s, full);
    EXPECT_NEAR(choice.restore_s, seconds, 1e-6);
    EXPECT_EQ(choice.sources, count);
    EXPECT_EQ(choice.stores, stores);
    EXPECT_EQ(choice.kind == SnapshotKind::full, choice.merged.size() == parents);
    EXPECT_EQ(choice.kind == SnapshotKind::increment, choice.merged.empty() && parents > 0);
    if (choice.kind != SnapshotKind::full) {
      EXPECT_LE(seconds, bounds.restore * full + 1e-6);
      EXPECT_LE(count, bounds.sources);
    }
    for (std::uint32_t other = 0; other < 1u << sources.size(); ++other) {
      if (rates.whole && other != 0) break;
      const double otherwise = naive_restore(sources, other, dirty, rates, count, stores);
      if (otherwise <= bounds.restore * full - 1e-6 && count <= bounds.sources) {
        EXPECT_LE(choice.stores, stores);
      }
    }
    ++kinds[choice.kind];
    if (testing::Test::HasFailure()) return;
  }
  for (const auto kind : {SnapshotKind::full, SnapshotKind::increment, SnapshotKind::merged})
    EXPECT_GT(kinds[kind], 1000);
}

TEST(ChooseSnapshot, MergesTheSmallestAndOfTwoTheOlder) {
  const std::vector<SnapshotSource> sources{{4, 90, 20}, {3, 90, 10}, {2, 90, 10}, {1, 90, 40}};
  EXPECT_EQ(choose_snapshot(sources, 5, {.request_s = 0}, {.sources = 4}).merged, (std::vector<Version>{2}));
  EXPECT_EQ(choose_snapshot(sources, 5, {.request_s = 0}, {.sources = 2}).merged, (std::vector<Version>{2, 3, 4}));
}

TEST(ChooseSnapshot, ReadingWholeSourcesMergesWhatIsMostlyDead) {
  const std::vector<SnapshotSource> sources{{2, 100, 10}, {1, 12, 8}};
  const RestoreRates whole{.request_s = 1, .bytes_s = 1, .whole = true};
  EXPECT_EQ(choose_snapshot(sources, 50, whole).merged, (std::vector<Version>{2}));
}

TEST(ChooseSnapshot, SourcesAreCountedByTheZonesThatAreNotDirty) {
  const std::vector<Version> zones{1, 1, 3, 3, 1, 2};
  const std::vector<std::uint8_t> dirty{0, 1, 0, 0, 0, 1};
  const auto found = sources_of(zones, dirty, 4, {{1, 100}, {2, 100}, {3, 6}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].version, 3);
  EXPECT_EQ(found[0].stored, 8u) << "the last zone of an array is smaller";
  EXPECT_EQ(found[0].needed, 8u);
  EXPECT_EQ(found[1].version, 1);
  EXPECT_EQ(found[1].stored, 100u);
  EXPECT_EQ(found[1].needed, 8u);
}

// --- live maps

}  // namespace
}  // namespace ebb::planner
