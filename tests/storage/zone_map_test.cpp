// Zone maps: what is written is read, what cannot be is refused, and what is planned from them gives each version's
// bytes, against full copies of the memory.
#include "storage/format/zone_map.hpp"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "storage/format/repacking.hpp"
#include "tests/storage/zone_map_samples.hpp"

namespace ebb::storage {
namespace {

using test::Bytes;
using test::full_map;
using test::next_map;
using test::PackedZones;
using test::sample_map;
using test::seal_zone_map;
using test::SnapshotModel;
using ::testing::HasSubstr;

TEST(ZoneMap, ComesBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const ZoneMap map = sample_map(seed);
    const Bytes bytes = encode(map);
    ASSERT_EQ(bytes.size(),
              zone_map_bytes(map.sources.size(), map.regions.size(), map.extents.size(), map.sums.size()));
    auto parsed = parse_zone_map(bytes);
    ASSERT_TRUE(parsed) << parsed.error().message;
    ASSERT_EQ(*parsed, map) << "seed " << seed;
  }
}

TEST(ZoneMap, FieldsLieWhereThePageSays) {
  const ZoneMap map{{{-2, {9, 10}, 4096}, {5, {8, 11}, 12288}},
                    {{8193, 4096}},
                    {{{0, 0, 1}, 0, 0}, {{0, 1, 2}, 1, 4096}},
                    {Checksum{std::byte{1}}, {}, Checksum{std::byte{3}}}};
  const Bytes bytes = encode(map);
  const auto four = [&](std::size_t at) { return BytesReader(std::span(bytes).subspan(at)).number<std::uint32_t>(); };
  const auto eight = [&](std::size_t at) { return BytesReader(std::span(bytes).subspan(at)).number<std::uint64_t>(); };
  EXPECT_EQ(BytesReader(bytes).text(8), "EBBZONES");
  EXPECT_THAT((std::vector{four(8), four(12), four(16), four(20)}), ::testing::ElementsAre(2, 1, 2, 3));
  EXPECT_EQ(BytesReader(std::span(bytes).subspan(24)).array<Checksum>(), checksum_of(std::span(bytes).subspan(120)));
  EXPECT_THAT((std::vector{eight(40), eight(48), eight(56), eight(64)}), ::testing::ElementsAre(~1ull, 9, 10, 4096));
  EXPECT_THAT((std::vector{eight(72), eight(80), eight(88), eight(96)}), ::testing::ElementsAre(5, 8, 11, 12288));
  EXPECT_EQ(BytesReader(std::span(bytes).subspan(104)).array<Checksum>(), checksum_of(std::span(bytes).first(104)));
  EXPECT_EQ(eight(120), 8193u);
  EXPECT_THAT((std::vector{four(128), four(132)}), ::testing::ElementsAre(4096, 2));
  EXPECT_THAT((std::vector{four(136), four(140), four(152), four(156)}), ::testing::ElementsAre(0, 1, 1, 2));
  EXPECT_THAT((std::vector{eight(144), eight(160)}), ::testing::ElementsAre(0, 4096));
  EXPECT_EQ(bytes[168], std::byte{1});
  EXPECT_EQ(bytes[200], std::byte{3});
  EXPECT_EQ(bytes.size(), 216u);
}

TEST(ZoneMap, EveryFlipAndEveryTruncationIsRefused) {
  const Bytes whole = encode(sample_map(5));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const std::byte bits : {std::byte{1}, std::byte{0x80}}) {
      Bytes bytes = whole;
      bytes[i] ^= bits;
      const auto refused = parse_zone_map(bytes);
      ASSERT_FALSE(refused) << i;
      ASSERT_EQ(refused.error().code, Errc::damaged);
    }
    const auto refused = parse_zone_map(std::span(whole).first(i));
    ASSERT_FALSE(refused) << i;
    ASSERT_EQ(refused.error().code, Errc::damaged);
  }
  Bytes longer = whole;
  longer.push_back({});
  EXPECT_FALSE(parse_zone_map(longer));
}

TEST(ZoneMap, A64GiBMemoryHasAMapOf16BytesAZone) {
  const std::uint64_t zones = 1 << 20;
  const ZoneMap full = full_map({1, {1, 1}, 0}, {{zones << 16, 64 << 10}}, std::vector<Checksum>(zones));
  EXPECT_LE(encode(full).size(), zones * 16 + 256);
  std::vector<PackedZones> every_second;
  for (std::uint32_t zone = 0; zone < zones; zone += 2) every_second.push_back({{0, zone, 1}, zone * 32768ull});
  const ZoneMap worst = next_map(full, {2, {2, 2}, zones << 15}, every_second, std::vector<Checksum>(zones / 2));
  EXPECT_LE(encode(worst).size(), zones * 32 + 256);
  EXPECT_EQ(parse_zone_map(encode(worst)).value(), worst);
}

// The rules one by one, in a map as a value and, where bytes can say it, under good checksums.
TEST(ZoneMap, WhatCannotBeIsRefusedByName) {
  const ZoneMap good{{{2, {9, 1}, 8192}, {1, {8, 1}, 20480}},
                     {{10'000, 4096}, {8192, 4096}},
                     {{{0, 0, 1}, 0, 0}, {{0, 1, 2}, 1, 4096}, {{1, 0, 1}, 1, 0}, {{1, 1, 1}, 0, 4096}},
                     std::vector<Checksum>(5)};
  ASSERT_EQ(misfit(good), "");
  const std::vector<std::pair<std::string, std::function<void(ZoneMap&)>>> cases = {
      {"own snapshot", [](ZoneMap& m) { m.sources.clear(); }},
      {"without an id", [](ZoneMap& m) { m.sources[1].id = {}; }},
      {"not older", [](ZoneMap& m) { m.sources[1].id.cut = 10; }},           // a source from the future: a cycle
      {"not older", [](ZoneMap& m) { m.sources[1].id = m.sources[0].id; }},  // itself
      {"not older", [](ZoneMap& m) { std::swap(m.sources[0], m.sources[1]); }},
      {"does not list", [](ZoneMap& m) { m.extents[1].source = 2; }},
      {"none of it",
       [](ZoneMap& m) { m.extents[1].source = m.extents[2].source = 0, m.sources[0].packed_bytes = 1 << 20; }},
      {"larger than any file", [](ZoneMap& m) { m.sources[1].packed_bytes = ~0ull << 12; }},
      {"whole blocks", [](ZoneMap& m) { m.sources[1].packed_bytes = 20479; }},
      {"past the end of its source", [](ZoneMap& m) { m.extents[0].offset = 8192; }},
      {"past the end of its source", [](ZoneMap& m) { m.extents[1].offset = ~0ull << 12; }},
      {"past the end of its source", [](ZoneMap& m) { m.sources[0].packed_bytes = 4096; }},
      {"multiple of 4096", [](ZoneMap& m) { m.extents[1].offset = 4097; }},
      {"two extents", [](ZoneMap& m) { m.extents[1].zones.first = 0; }},
      {"two extents", [](ZoneMap& m) { m.extents.insert(m.extents.begin() + 1, m.extents[1]); }},
      {"no extent", [](ZoneMap& m) { std::swap(m.extents[0], m.extents[1]); }},
      {"no extent", [](ZoneMap& m) { m.extents.pop_back(); }},
      {"no extent", [](ZoneMap& m) { m.extents.erase(m.extents.begin()); }},
      {"no extent", [](ZoneMap& m) { m.extents.erase(m.extents.begin() + 1); }},
      {"no extent", [](ZoneMap& m) { m.extents[1].zones.count = 1; }},
      {"end of its region", [](ZoneMap& m) { m.extents[1].zones.count = 3; }},
      {"end of its region", [](ZoneMap& m) { m.extents[1].zones.count = UINT32_MAX; }},
      {"without zones", [](ZoneMap& m) { m.extents[0].zones.count = 0; }},
      {"after the last zone", [](ZoneMap& m) { m.extents.push_back(m.extents.back()); }},
      {"power of two", [](ZoneMap& m) { m.regions[0].zone_bytes = 0; }},
      {"power of two", [](ZoneMap& m) { m.regions[0].zone_bytes = 2048; }},
      {"power of two", [](ZoneMap& m) { m.regions[0].zone_bytes = 12288; }},
      {"power of two", [](ZoneMap& m) { m.regions[0].zone_bytes = 128 << 20; }},
      {"larger than any file", [](ZoneMap& m) { m.regions[0].bytes = ~0ull; }},
      {"zones", [](ZoneMap& m) { m.regions[0].bytes = 1ull << 62; }},
      {"one checksum for each zone", [](ZoneMap& m) { m.sums.pop_back(); }},
      {"one checksum for each zone", [](ZoneMap& m) { m.sums.push_back({}); }},
  };
  for (const auto& [what, change] : cases) {
    ZoneMap bad = good;
    change(bad);
    EXPECT_THAT(misfit(bad), HasSubstr(what));
    EXPECT_THROW(static_cast<void>(encode(bad)), std::logic_error) << what;
  }

  // Where the fields of `good` lie: sources at 40, regions at 120, extents at 152, checksums at 216.
  struct Field {
    std::size_t at, size;
    std::uint64_t value;
    std::string what;
  };
  const Field fields[] = {
      {8, 4, 0, "own snapshot"},
      {8, 4, 1, "longer or shorter"},
      {8, 4, UINT32_MAX, "truncated"},
      {12, 4, UINT32_MAX, "shorter"},
      {16, 4, 3, "shorter"},
      {20, 4, UINT32_MAX, "shorter"},
      {80, 8, 9, "not older"},
      {80, 8, ~0ull, "not older"},
      {96, 8, ~0ull << 12, "larger than any file"},
      {96, 8, 8192, "past the end of"},
      {120, 8, 4096, "one checksum"},
      {120, 8, ~0ull, "larger than any"},
      {120, 8, 1ull << 61, "zones"},
      {128, 4, 8192, "one checksum"},
      {128, 4, 0, "power of two"},
      {132, 4, 1, "do not add up"},
      {132, 4, UINT32_MAX, "add up"},
      {152, 4, 2, "does not list"},
      {156, 4, 0, "without zones"},
      {156, 4, 2, "of its region"},
      {156, 4, UINT32_MAX, "of its region"},
      {160, 8, 4095, "multiple"},
      {160, 8, ~0ull << 12, "past the"},
      {172, 4, 1, "no extent"},
      {172, 4, 3, "of its region"},
      {192, 8, 8192, ""},
      {176, 8, 16384, "past the end of"},
  };
  const Bytes whole = encode(good);
  ASSERT_EQ(whole.size(), 296u);
  for (const Field& field : fields) {
    Bytes bytes = whole;
    for (std::size_t i = 0; i < field.size; ++i) bytes[field.at + i] = static_cast<std::byte>(field.value >> (8 * i));
    seal_zone_map(bytes);
    const auto parsed = parse_zone_map(bytes);
    if (field.what.empty()) {
      EXPECT_TRUE(parsed) << field.at << ": " << parsed.error().message;
      continue;
    }
    ASSERT_FALSE(parsed) << field.at << " = " << field.value;
    EXPECT_EQ(parsed.error().code, Errc::damaged);
    EXPECT_THAT(parsed.error().message, HasSubstr(field.what)) << field.at << " = " << field.value;
  }
}

TEST(ZoneMap, RandomFieldsUnderGoodChecksumsGiveAMapOrANamedError) {
  std::mt19937_64 random(20);
  std::vector<Bytes> samples;
  for (std::uint64_t seed = 0; seed < 6; ++seed) samples.push_back(encode(sample_map(seed)));
  std::size_t good = 0;
  for (int i = 0; i < 60'000; ++i) {
    Bytes bytes = samples[random() % samples.size()];
    for (std::uint64_t n = 1 + random() % 3; n-- > 0;) {
      const std::size_t at = 8 + random() % std::min<std::size_t>(bytes.size() - 16, 400);
      const std::size_t size = random() % 2 ? 1 : 8;
      const std::uint64_t value = random() % 2 ? random() % 10 : random() % 2 ? ~0ull << (random() % 64) : random();
      for (std::size_t k = 0; k < size; ++k) bytes[at + k] = static_cast<std::byte>(value >> (8 * k));
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    seal_zone_map(bytes);
    const auto parsed = parse_zone_map(bytes);
    if (!parsed) {
      ASSERT_EQ(parsed.error().code, Errc::damaged);
      ASSERT_FALSE(parsed.error().message.empty());
      continue;
    }
    ++good;
    ASSERT_EQ(misfit(*parsed), "");
    ASSERT_EQ(encode(*parsed), bytes);
  }
  EXPECT_GT(good, 100u) << "the cases must get past the checksums";
}

// --- what is planned from maps

std::vector<Bytes> garbage(const std::vector<ZoneMap::Region>& regions) {
  std::vector<Bytes> out;
  for (const auto& region : regions) out.emplace_back(region.bytes, std::byte{0xEE});
  return out;
}

// Carries a plan out: every read checked against the source's end, every piece against its checksums.
void carry_out(const ZonePlan& plan, const ZoneMap& map,
               const std::map<std::pair<std::uint64_t, std::uint64_t>, Bytes>& packed, std::vector<Bytes>& to) {
  std::size_t pieces = 0;
  for (const ZoneRead& read : plan.reads) {
    const SnapshotId& id = map.sources[read.source].id;
    const Bytes& source = packed.at({id.cut, id.random});
    ASSERT_EQ(source.size(), map.sources[read.source].packed_bytes);
    ASSERT_LE(read.offset + read.bytes, source.size());
    ASSERT_EQ(read.offset % 4096, 0u);
    const auto bytes = std::span(source).subspan(read.offset, read.bytes);
    ASSERT_EQ(read.first_piece, pieces);
    for (; pieces < read.first_piece + read.pieces; ++pieces) {
      const ZonePiece& piece = plan.pieces[pieces];
      ASSERT_GE(piece.offset, read.offset);
      ASSERT_LE(piece.offset + piece.bytes, read.offset + read.bytes);
      const auto part = bytes.subspan(piece.offset - read.offset, piece.bytes);
      ASSERT_EQ(first_mismatch(map, piece, part), std::nullopt);
      Bytes& region = to[piece.zones.region];
      ASSERT_LE(piece.at + piece.bytes, region.size());
      std::ranges::copy(part, region.begin() + static_cast<std::ptrdiff_t>(piece.at));
    }
  }
  ASSERT_EQ(pieces, plan.pieces.size());
}

std::vector<std::vector<bool>> zones_that_differ(const SnapshotModel& model, const std::vector<Bytes>& a,
                                                 const std::vector<Bytes>& b) {
  std::vector<std::vector<bool>> out;
  for (std::size_t i = 0; i < model.regions_.size(); ++i) {
    std::vector<bool>& zones = out.emplace_back();
    for (std::uint64_t zone = 0; zone < model.regions_[i].zones(); ++zone) {
      const auto begin = static_cast<std::ptrdiff_t>(model.regions_[i].begin(zone));
      const auto end = static_cast<std::ptrdiff_t>(model.regions_[i].begin(zone + 1));
      zones.push_back(!std::equal(a[i].begin() + begin, a[i].begin() + end, b[i].begin() + begin));
    }
  }
  return out;
}

class PlansOfRandomCuts : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  // Each version on top of any older one, as after a restore, under versions that are also written anew.
  void make_snapshots() {
    model.snapshots_.reserve(kSnapshots);
    model.cut(0, nullptr);
    while (model.snapshots_.size() < kSnapshots) {
      const std::size_t last = model.snapshots_.size() - 1;
      const std::size_t from = model.random_() % 4 == 0 ? model.random_() % (last + 1) : last;
      const auto& before = model.snapshots_[from];
      model.memory_ = before.memory;
      model.write();
      model.cut(static_cast<Version>(model.random_() % 8), model.random_() % 10 == 0 ? nullptr : &before);
    }
  }
  static constexpr std::size_t kSnapshots = 24;
  SnapshotModel model{{{70'000, 4096}, {16'384, 8192}, {0, 4096}, {4097, 4096}, {100'000, 16'384}}, GetParam()};
};

TEST_P(PlansOfRandomCuts, RestoreEveryVersionFromWhatTheMapNeeds) {
  make_snapshots();
  for (const auto& [map, memory] : model.snapshots_) {
    auto packed = model.packed_;
    const auto needed = needed_bytes(map);
    // All other bytes of the sources are lost, and all other snapshots.
    std::map<std::pair<std::uint64_t, std::uint64_t>, Bytes> left;
    for (std::size_t i = 0; i < map.sources.size(); ++i) {
      const std::pair id(map.sources[i].id.cut, map.sources[i].id.random);
      Bytes& to = left[id];
      to.assign(packed.at(id).size(), std::byte{0xAA});
      for (const ByteRange& range : needed[i]) {
        std::copy_n(packed.at(id).begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes,
                    to.begin() + static_cast<std::ptrdiff_t>(range.offset));
      }
    }
    const ZoneMap read = parse_zone_map(encode(map)).value();
    std::vector<Bytes> to = garbage(model.regions_);
    const ZonePlan plan = plan_restore(read);
    ASSERT_NO_FATAL_FAILURE(carry_out(plan, read, left, to));
    ASSERT_EQ(to, memory);

    std::uint64_t all = 0, memory_bytes = 0;
    for (const auto& ranges : needed) all += total(ranges);
    for (const Bytes& region : memory) memory_bytes += region.size();
    EXPECT_EQ(all, memory_bytes) << "no two zones share a place here";
    EXPECT_LE(plan.bytes, memory_bytes + 4096 * model.regions_.size());
    for (std::size_t i = 1; i < plan.reads.size(); ++i) {
      const ZoneRead &a = plan.reads[i - 1], &b = plan.reads[i];
      ASSERT_TRUE(a.source < b.source || (a.source == b.source && os::round_up(a.offset + a.bytes) < b.offset))
          << "neighbours are one read";
    }
  }
}

TEST_P(PlansOfRandomCuts, MoveOnlyTheZonesInWhichTwoVersionsDiffer) {
  make_snapshots();
  for (int i = 0; i < 60; ++i) {
    const auto& have = model.snapshots_[model.random_() % kSnapshots];
    const auto& want = model.snapshots_[model.random_() % kSnapshots];
    const auto zones = differing_zones(want.map, have.map);
    auto expected = zones_that_differ(model, want.memory, have.memory);
    const ZoneRange* before = nullptr;
    for (const ZoneRange& range : zones) {
      ASSERT_TRUE(before == nullptr || before->region < range.region || before->first + before->count < range.first)
          << "ranges are as long as they can be";
      before = &range;
      for (std::uint32_t zone = range.first; zone < range.first + range.count; ++zone) {
        ASSERT_TRUE(expected[range.region][zone]);
        expected[range.region][zone] = false;
      }
    }
    for (const auto& region : expected) ASSERT_FALSE(std::ranges::count(region, true));
    std::vector<Bytes> to = have.memory;
    ASSERT_NO_FATAL_FAILURE(carry_out(plan_restore(want.map, zones), want.map, model.packed_, to));
    ASSERT_EQ(to, want.memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlansOfRandomCuts, ::testing::Range<std::uint64_t>(1, 13));

TEST(ZonePlan, AFlippedByteIsFoundInItsZone) {
  SnapshotModel model({{20'000, 4096}}, 3);
  const auto& [map, memory] = model.cut(1, nullptr);
  const ZonePlan plan = plan_restore(map);
  ASSERT_EQ(plan.pieces.size(), 1u);
  for (std::size_t at = 0; at < 20'000; at += 101) {
    Bytes bytes = memory[0];
    bytes[at] ^= std::byte{4};
    EXPECT_EQ(first_mismatch(map, plan.pieces[0], bytes), at / 4096);
  }
  EXPECT_THROW(first_mismatch(map, plan.pieces[0], std::span(memory[0]).first(4096)), std::logic_error);
}

TEST(ZonePlan, APlaceThatSeveralZonesShareIsReadOnce) {
  const Bytes zone(4096, std::byte{5});
  const Checksum sum = checksum_of(zone);
  const ZoneMap map{{{1, {1, 1}, 4096}},
                    {{12'288, 4096}},
                    {{{0, 0, 1}, 0, 0}, {{0, 1, 1}, 0, 0}, {{0, 2, 1}, 0, 0}},
                    {sum, sum, sum}};
  ASSERT_EQ(misfit(map), "");
  const ZonePlan plan = plan_restore(map);
  EXPECT_EQ(plan.reads.size(), 1u);
  EXPECT_EQ(plan.bytes, 4096u);
  EXPECT_EQ(plan.pieces.size(), 3u);
  EXPECT_EQ(total(needed_bytes(map)[0]), 4096u);
  std::vector<Bytes> to{Bytes(12'288)};
  carry_out(plan, map, {{{1, 1}, zone}}, to);
  EXPECT_EQ(to[0], Bytes(12'288, std::byte{5}));

  // Two zones, and a third that lies where the first of them does.
  const ZoneMap nested{{{1, {1, 1}, 8192}}, {{12'288, 4096}}, {{{0, 0, 2}, 0, 0}, {{0, 2, 1}, 0, 0}}, {sum, sum, sum}};
  const ZonePlan both = plan_restore(nested);
  ASSERT_EQ(both.reads.size(), 1u);
  EXPECT_EQ(both.bytes, 8192u);
  carry_out(both, nested, {{{1, 1}, Bytes(8192, std::byte{5})}}, to);
}

TEST(ZonePlan, RangesThatOverlapOrTouchAreOne) {
  EXPECT_THAT(united({{8, 4}, {0, 4}, {4, 0}, {4, 2}, {20, 1}, {9, 1}}),
              ::testing::ElementsAre(ByteRange{0, 6}, ByteRange{8, 4}, ByteRange{20, 1}));
}

// The same version, written again after a drop: the old map names the old bytes, and never the new ones.
TEST(ZonePlan, AVersionWrittenAnewIsAnotherSource) {
  SnapshotModel model({{8192, 4096}}, 8);
  model.snapshots_.reserve(4);
  const auto& first = model.cut(1, nullptr);
  model.dirty_ = {{0, 1, 1}};
  const auto& child = model.cut(2, &first);
  model.write();
  const auto& again = model.cut(1, nullptr);
  EXPECT_NE(again.map.own().id, first.map.own().id);
  EXPECT_EQ(child.map.sources[1].version, again.map.own().version);
  EXPECT_EQ(child.map.sources[1].id, first.map.own().id);
}

TEST(Repacking, PutsEachZoneAtAMultipleOfItsSizeAndInNoOthersPlace) {
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    const ZoneMap map = test::sample_map(seed);
    for (std::uint32_t source = 1; source < map.sources.size(); ++source) {
      Repacking packing;
      packing.add(map, source);
      packing.add(map, source);  // as another map that needs the same
      packing.pack();
      const ZoneMap moved = packing.moved(map, source, {map.sources[source].id.cut, 77});
      ASSERT_EQ(misfit(moved), "");
      ASSERT_EQ(moved.sums, map.sums);
      const std::uint64_t needed = total(needed_bytes(map)[source]);
      EXPECT_LT(packing.bytes(), 2 * needed + 2 * 4096 * map.regions.size());
      std::uint64_t end = 0;
      for (const Repacking::Slot& slot : packing.slots()) {
        ASSERT_EQ(slot.at % slot.bytes, 0u);
        ASSERT_EQ(slot.at, std::exchange(end, slot.at + slot.bytes));
      }
      EXPECT_EQ(total(needed_bytes(moved)[source]), needed);
    }
  }
}

TEST(ZonePlan, BrokenContractsThrow) {
  const ZoneMap map = full_map({1, {1, 1}, 0}, {{8192, 4096}}, std::vector<Checksum>(2));
  EXPECT_THROW(differing_zones(map, full_map({1, {1, 1}, 0}, {{4096, 4096}}, std::vector<Checksum>(1))),
               std::logic_error);
  const ZoneRange outside{0, 2, 1};
  EXPECT_THROW(plan_restore(map, std::span(&outside, 1)), std::logic_error);
}

}  // namespace
}  // namespace ebb::storage
