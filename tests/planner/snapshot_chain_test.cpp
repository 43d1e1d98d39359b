#include "planner/snapshot_chain.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace ebb::policy {
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

struct NaiveVersion {
  std::vector<Version> sources;  // of each zone
  Bytes stored = 0;
  bool live = true;
};

// Histories that go back, drop and rewrite as they like: within the bounds at every cut, and exactly what a live map
// names is held.
TEST(LiveMapsRandom, HoldsExactlyWhatLiveMapsName) {
  constexpr std::size_t kCount = 48;
  std::size_t rewrites = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    LiveMaps maps;
    std::map<Version, NaiveVersion> naive;
    std::vector<Version> sources;
    std::vector<bool> touched(kCount);
    Version next = 0;

    const auto named = [&](Version source, Version map) {
      return static_cast<Bytes>(std::ranges::count(naive.at(map).sources, source));
    };
    const auto parts_of = [&](Version map) {
      std::vector<MapPart> parts;
      for (Version s : std::set<Version>(naive.at(map).sources.begin(), naive.at(map).sources.end()))
        parts.push_back({s, named(s, map)});
      return parts;
    };
    const auto needed = [&](Version version) {
      return naive.at(version).live || std::ranges::any_of(naive, [&](const auto& other) {
               return other.second.live && std::ranges::count(other.second.sources, version) > 0;
             });
    };
    const auto take = [&](const std::vector<Version>& gone) {
      EXPECT_TRUE(std::ranges::is_sorted(gone));
      for (Version v : gone) EXPECT_FALSE(needed(v)) << v;
      for (Version v : gone) naive.erase(v);
      for (const auto& [v, one] : naive) {
        EXPECT_TRUE(needed(v)) << v << " is held for nobody";
        EXPECT_TRUE(maps.held(v));
        EXPECT_EQ(maps.live(v), one.live);
      }
    };

    naive[kMemory].sources = {};
    maps.add(kMemory, 0, {});
    const auto lean = [&] {
      naive.at(kMemory).sources = sources;
      take(maps.replace(kMemory, 0, parts_of(kMemory)));
    };

    for (int step = 0; step < 300 && !testing::Test::HasFailure(); ++step) {
      const std::uint64_t what = random() % 10;
      std::vector<Version> live;
      for (const auto& [v, one] : naive)
        if (one.live && v != kMemory) live.push_back(v);
      if (what < 6 || live.empty()) {  // a cut
        std::vector<std::uint8_t> dirty(kCount);
        for (auto& d : dirty) d = sources.empty() || random() % 8 == 0;
        for (std::size_t z = 0; z < kCount; ++z) dirty[z] |= touched[z];
        touched.assign(kCount, false);
        std::map<Version, Bytes> stored;
        for (const auto& [v, one] : naive) stored[v] = one.stored;
        if (sources.empty()) sources.assign(kCount, 0);
        const auto known = sources_of(sources, dirty, 1, stored);
        const RestoreRates rates{.request_s = 0.5, .bytes_s = 1};
        const Bytes count = static_cast<Bytes>(std::ranges::count(dirty, 1));
        const SnapshotChoice choice = choose_snapshot(known, count, rates);
        const Version made = ++next;
        NaiveVersion& one = naive[made];
        for (std::size_t z = 0; z < kCount; ++z)
          if (dirty[z] != 0 || std::ranges::count(choice.merged, sources[z]) > 0) sources[z] = made, ++one.stored;
        one.sources = sources;
        EXPECT_EQ(one.stored, choice.stores);
        const std::set<Version> read(sources.begin(), sources.end());
        EXPECT_EQ(read.size(), choice.sources);
        EXPECT_LE(read.size(), 8u);
        EXPECT_LE(static_cast<double>(read.size()) * 0.5 + kCount, 1.2 * (0.5 + kCount));
        maps.add(made, one.stored, parts_of(made));
        lean();
      } else if (what < 8) {  // a version ends, perhaps the last
        const Version v = live[random() % live.size()];
        naive.at(v).live = false;
        take(maps.end(v));
      } else if (what == 8) {  // going back
        sources = naive.at(live[random() % live.size()]).sources;
        lean();
      } else {  // what gc does
        std::map<Version, std::vector<Version>> expected;
        live.insert(live.begin(), kMemory);
        for (const auto& [v, one] : naive) {
          Bytes most = one.live ? one.stored : 0;
          for (Version map : live) most = std::max(most, named(v, map));
          EXPECT_EQ(maps.alive(v), most);
          std::vector<Version> by;
          for (Version map : live)
            if (named(v, map) > 0 || map == v) by.push_back(map);
          EXPECT_EQ(maps.named_by(v), by);
          if (2 * most < one.stored)
            for (Version map : by) expected[map].push_back(v);
        }
        std::map<Version, std::vector<Version>> said;
        for (const auto& r : maps.to_rewrite()) said[r.map] = r.parents;
        EXPECT_EQ(said, expected);
        for (const auto& [map, parents] : expected) {
          ++rewrites;
          if (map == kMemory) {
            for (std::size_t z = 0; z < kCount; ++z) touched[z] = std::ranges::count(parents, sources[z]) > 0;
            continue;
          }
          for (Version& source : naive.at(map).sources)
            if (std::ranges::count(parents, source) > 0) source = map, ++naive.at(map).stored;
          take(maps.replace(map, naive.at(map).stored, parts_of(map)));
        }
        for (const auto& r : maps.to_rewrite()) EXPECT_EQ(r.map, kMemory);
        Bytes for_others = 0;
        for (const auto& [v, one] : naive) for_others += one.live ? 0 : one.stored;
        EXPECT_EQ(maps.held_for_others(), for_others);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(rewrites, 100u);
}

TEST(LiveMaps, AParentGoesWithTheLastMapThatNamesIt) {
  LiveMaps maps;
  maps.add(1, 100, std::vector<MapPart>{{1, 100}});
  maps.add(2, 10, std::vector<MapPart>{{1, 90}, {2, 10}});
  maps.add(3, 60, std::vector<MapPart>{{1, 40}, {3, 60}});
  EXPECT_EQ(maps.end(1), (std::vector<Version>{}));
  EXPECT_EQ(maps.named_by(1), (std::vector<Version>{2, 3}));
  EXPECT_TRUE(maps.to_rewrite().empty());
  EXPECT_EQ(maps.end(2), (std::vector<Version>{2}));
  const auto rewrites = maps.to_rewrite();
  ASSERT_EQ(rewrites.size(), 1u);
  EXPECT_EQ(rewrites[0].map, 3);
  EXPECT_EQ(rewrites[0].parents, (std::vector<Version>{1}));
  EXPECT_EQ(maps.end(3), (std::vector<Version>{1, 3}));
}

TEST(LiveMaps, WhatCannotBeThrows) {
  LiveMaps maps;
  maps.add(1, 100, {});
  const auto add = [&](Version v, std::vector<MapPart> parts) { maps.add(v, 10, parts); };
  EXPECT_THROW(add(1, {}), std::logic_error);
  EXPECT_THROW(add(2, {{7, 1}}), std::logic_error);
  EXPECT_THROW(add(2, {{1, 101}}), std::logic_error);
  EXPECT_THROW(add(2, {{1, 10}, {1, 10}}), std::logic_error);
  EXPECT_FALSE(maps.held(2));
  EXPECT_EQ(maps.named_by(1), (std::vector<Version>{1})) << "what was refused left nothing";
  add(2, {{1, 50}});
  EXPECT_THROW(maps.replace(1, 49, {}), std::logic_error);
  EXPECT_THROW(maps.end(7), std::logic_error);
  maps.end(1);
  EXPECT_THROW(maps.end(1), std::logic_error);
  EXPECT_THROW(maps.replace(1, 100, {}), std::logic_error);
  EXPECT_THROW(choose_snapshot(std::vector<SnapshotSource>{{1, 5, 6}}, 0, {}), std::logic_error);
  EXPECT_THROW(sources_of(std::vector<Version>{1}, {}, 1, {}), std::logic_error);
}

}  // namespace
}  // namespace ebb::policy
