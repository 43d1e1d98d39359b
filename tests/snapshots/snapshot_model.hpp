#pragma once
// Snapshots written by hand, as the design has them, and copies of the memory that each has.
#include <map>
#include <random>
#include <set>

#include "storage/format/snapshot_layout.hpp"
#include "storage/format/snapshot_names.hpp"
#include "tests/storage/made_zone_maps.hpp"
#include "tests/store/support.hpp"

namespace ebb::store::testing_support {

inline constexpr Sizes kSmall{.device = 64 * kKiB, .host = 64 * kKiB, .disk = 16384 * kKiB, .chunk = 4 * kKiB};

/// The memory of a program: a region in three parts, of which two are less than a page; one whose last zone is short;
/// one without bytes.
class SnapshotModel {
 public:
  static constexpr std::uint32_t kZone = 4096;
  using Bytes = std::vector<std::byte>;
  using Memory = std::map<std::uint32_t, std::vector<std::byte>>;  // by region
  struct Written {
    storage::ZoneMap map;
    storage::SnapshotLayout layout;
    Memory memory;
  };

  explicit SnapshotModel(std::uint64_t seed) : random_(seed) {}

  Memory blank() const { return {{7, Bytes(100 + 12 * kZone + 50)}, {2, Bytes(9 * kZone + 1000)}, {1, {}}}; }
  Memory filled(std::byte with) const {
    Memory out = blank();
    for (auto& [region, bytes] : out) std::fill(bytes.begin(), bytes.end(), with);
    return out;
  }
  static std::vector<Target> targets(Memory& memory) {
    std::vector<Target> out;
    for (auto& [region, bytes] : memory) out.push_back({region, bytes.data(), bytes.size()});
    return out;
  }

  /// What a snapshot of `dirty` zones (all, if there is no parent) would be, with its packed bytes.
  struct Made {
    Written written;
    std::vector<std::byte> packed;
  };
  Made make(Version version, const Written* parent, const std::vector<storage::ZoneRange>& dirty, Memory memory) {
    storage::ZoneMap::Source own{version, {cut_ += 10, random_()}, 0};
    std::vector<test::PackedZones> placed;  // in any order, as writes and the copying come
    std::vector<std::uint64_t> places;
    for (const auto& range : dirty) {
      for (std::uint32_t i = 0; i < range.count; ++i) {
        placed.push_back({{range.region, range.first + i, 1}, 0});
        places.push_back(places.size() * kZone);
      }
    }
    std::shuffle(places.begin(), places.end(), random_);
    own.packed_bytes = places.size() * kZone;
    Bytes packed(own.packed_bytes);
    std::vector<storage::Checksum> sums;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      placed[i].offset = places[i];
      const auto bytes = zone(memory, placed[i].zones.region, placed[i].zones.first);
      sums.push_back(storage::checksum_of(bytes));
      std::copy(bytes.begin(), bytes.end(), packed.begin() + static_cast<std::ptrdiff_t>(places[i]));
    }
    Written out{test::next_map(parent != nullptr ? parent->map : nothing(), own, placed, sums), {}, memory};
    piece_bytes_[{out.map.own().id.cut, own.id.random}] = std::uint64_t{kZone} << random_() % 4;
    cut_ = std::max(cut_, out.map.own().id.cut);
    out.layout.parts = kParts;
    for (const auto& source : out.map.sources) {
      out.layout.piece_bytes.push_back(piece_bytes_.at({source.id.cut, source.id.random}));
    }
    return {std::move(out), std::move(packed)};
  }
  /// The zones of the map's regions.
  std::vector<storage::ZoneRange> all() const { return storage::all_zones(kRegions); }
  std::vector<storage::ZoneRange> some() {
    std::vector<storage::ZoneRange> out;
    const unsigned share = 1 + random_() % 8;
    for (const auto& range : all()) {
      for (std::uint32_t i = 0; i < range.count; ++i) {
        if (random_() % 8 < share) out.push_back({range.region, i, 1});
      }
    }
    return out;
  }
  void write_zone(Memory& memory, const storage::ZoneRange& one) {
    for (std::byte& byte : zone(memory, one.region, one.first)) byte = static_cast<std::byte>(random_());
  }
  static std::span<std::byte> zone(Memory& memory, std::uint32_t region, std::uint32_t number) {
    const std::uint64_t begin = kRegions[region].begin(number);
    return std::span(memory.at(kParts[region].region))
        .subspan(kParts[region].at + begin, kRegions[region].bytes_of(number, 1));
  }

  /// The pieces, then the map; as durable as the store promises.
  static void store(Engine& engine, const Made& made, const std::string& metadata = "m") {
    store_pieces(engine, made);
    store_map(engine, made.written.map.own().version, storage::encode(made.written.map), encode(made.written.layout),
              metadata);
  }
  static void store_pieces(Engine& engine, const Made& made) {
    const std::uint64_t piece = made.written.layout.piece_bytes[0];
    for (std::uint64_t at = 0; at < made.packed.size(); at += piece) {
      History history = engine.view(name(made.written, 0, at / piece));
      const auto done =
          history.checkpoint(0, {{0, made.packed.data() + at, std::min<std::uint64_t>(piece, made.packed.size() - at)}},
                             {.timeout = Seconds(60)});
      ASSERT_TRUE(done) << done.error().message;
      const auto durable = Result<Future>(done).value().wait("storage", Seconds(60));
      ASSERT_TRUE(durable || durable.error().code == Errc::unsupported) << durable.error().message;
    }
  }
  static void store_map(Engine& engine, Version version, const Bytes& map, const Bytes& layout,
                        const std::string& metadata = "m") {
    const std::vector<Source> regions{{storage::kMapRegion, map.data(), map.size()},
                                      {storage::kLayoutRegion, layout.data(), layout.size()}};
    const auto done = engine.writes().checkpoint(engine.shared_from_this(), 0, version, regions,
                                                 {.metadata = metadata, .timeout = Seconds(60)});
    ASSERT_TRUE(done) << done.error().message;
  }
  static std::string name(const Written& of, std::size_t source, std::uint64_t piece) {
    return storage::PieceName{"", of.map.sources[source].id, piece}.text();
  }

  std::mt19937_64& random() { return random_; }

 private:
  static inline const std::vector<storage::ZoneMap::Region> kRegions{
      {9 * kZone + 1000, kZone}, {100, kZone}, {12 * kZone, kZone}, {50, kZone}, {0, kZone}};
  static inline const std::vector<storage::SnapshotLayout::RegionPart> kParts{
      {2, 0}, {7, 0}, {7, 100}, {7, 100 + 12 * kZone}, {1, 0}};

  // A first snapshot has all zones, wherever they were copied: so it follows one that nothing is left of.
  static storage::ZoneMap nothing() {
    std::uint64_t zones = 0;
    for (const auto& region : kRegions) zones += region.zones();
    return test::full_map({0, {1, 1}, 0}, kRegions, std::vector<storage::Checksum>(zones));
  }

  std::mt19937_64 random_;
  std::uint64_t cut_ = 1;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> piece_bytes_;
};

}  // namespace ebb::store::testing_support
