#pragma once
// Zone maps and snapshots made by hand.
#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "storage/format/bytes.hpp"
#include "tests/storage/made_zone_maps.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::test {

/// Snapshots of a memory as a store would have them: packed bytes by id, and a full copy of the memory at each cut.
class SnapshotModel {
 public:
  using Region = storage::ZoneMap::Region;
  struct Snapshot {
    storage::ZoneMap map;
    std::vector<Bytes> memory;  // of each region, at the cut
  };

  SnapshotModel(std::vector<Region> regions, std::uint64_t seed) : regions_(std::move(regions)), random_(seed) {
    for (const Region& region : regions_) memory_.push_back(random_bytes(region.bytes, random_()));
  }

  /// Writes to some zones, most to few, some twice; sometimes what is there already.
  void write() {
    dirty_.clear();
    const std::uint64_t share = 1 + random_() % 8;
    for (std::uint32_t i = 0; i < regions_.size(); ++i) {
      for (std::uint32_t zone = 0; zone < regions_[i].zones(); ++zone) {
        if (random_() % 8 >= share) continue;
        dirty_.push_back({i, zone, 1});
        if (random_() % 4 == 0) continue;  // written, and equal
        const std::uint64_t begin = regions_[i].begin(zone), bytes = regions_[i].bytes_of(zone, 1);
        memory_[i][begin + random_() % bytes] ^= static_cast<std::byte>(1 + random_() % 255);
      }
    }
  }

  /// A snapshot of all zones, or of the dirty ones on top of `before`.
  const Snapshot& cut(std::int64_t version, const Snapshot* before) {
    storage::ZoneMap::Source own{version, {++clock_, random_()}, 0};
    if (before == nullptr) {
      Bytes packed;
      std::vector<storage::Checksum> sums;
      for (const storage::ZoneRange& range : storage::all_zones(regions_)) store(packed, range, sums);
      return add(full_map(own, regions_, std::move(sums)), std::move(packed));
    }
    // Stored in another order than that of the zones, as a drain would.
    std::vector<storage::ZoneRange> order = joined(dirty_);
    std::ranges::shuffle(order, random_);
    std::vector<PackedZones> stored;
    std::vector<storage::Checksum> sums;
    Bytes packed;
    for (const storage::ZoneRange& range : order) {
      stored.push_back({range, os::round_up(packed.size())});
      store(packed, range, sums);
    }
    own.packed_bytes = os::round_up(packed.size());
    return add(next_map(before->map, own, stored, sums), std::move(packed));
  }

  /// The dirty zones as ranges, now and then two for neighbours.
  std::vector<storage::ZoneRange> joined(const std::vector<storage::ZoneRange>& zones) {
    std::vector<storage::ZoneRange> out;
    for (const storage::ZoneRange& one : zones) {
      const bool follows = !out.empty() && out.back().region == one.region &&
                           out.back().first + out.back().count == one.first && random_() % 4 != 0;
      if (follows) {
        ++out.back().count;
      } else {
        out.push_back(one);
      }
    }
    return out;
  }

  std::vector<Region> regions_;
  std::mt19937_64 random_;
  std::vector<Bytes> memory_;
  std::vector<storage::ZoneRange> dirty_;
  std::vector<Snapshot> snapshots_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Bytes> packed_;  // by id

 private:
  void store(Bytes& packed, const storage::ZoneRange& range, std::vector<storage::Checksum>& sums) {
    packed.resize(os::round_up(packed.size()));
    for (std::uint32_t zone = range.first; zone < range.first + range.count; ++zone) {
      const Region& region = regions_[range.region];
      const auto bytes = std::span(memory_[range.region]).subspan(region.begin(zone), region.bytes_of(zone, 1));
      packed.insert(packed.end(), bytes.begin(), bytes.end());
      sums.push_back(storage::checksum_of(bytes));
    }
  }
  const Snapshot& add(storage::ZoneMap map, Bytes packed) {
    packed.resize(os::round_up(packed.size()));
    packed_[{map.own().id.cut, map.own().id.random}] = std::move(packed);
    return snapshots_.emplace_back(Snapshot{std::move(map), memory_});
  }

  std::uint64_t clock_ = 100;
};

/// A map with several sources, regions that are empty and that end within a zone.
inline storage::ZoneMap sample_map(std::uint64_t seed) {
  SnapshotModel model({{40'000, 4096}, {0, 8192}, {65'536, 8192}, {1, 4096}}, seed);
  model.snapshots_.reserve(8);
  model.cut(-3, nullptr);
  for (std::int64_t version = 0; version < static_cast<std::int64_t>(seed % 6); ++version) {
    model.write();
    model.cut(version, &model.snapshots_.back());
  }
  return model.snapshots_.back().map;
}

/// The checksums that a hostile writer would put in.
inline void seal_zone_map(Bytes& bytes) {
  if (bytes.size() < 24) return;
  const std::uint64_t sources = storage::BytesReader(std::span(bytes).subspan(8)).number<std::uint32_t>();
  const std::uint64_t front = storage::zone_map_bytes(sources, 0, 0, 0);
  if (front > bytes.size()) return;
  storage::BytesWriter(bytes.data() + 24).bytes(storage::checksum_of(std::span(bytes).subspan(front)));
  const std::uint64_t sealed = front - sizeof(storage::Checksum);
  storage::BytesWriter(bytes.data() + sealed).bytes(storage::checksum_of(std::span(bytes).first(sealed)));
}

}  // namespace ebb::test
