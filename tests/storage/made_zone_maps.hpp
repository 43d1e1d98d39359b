#pragma once
// Maps of snapshots, made one zone after the other.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "os/files.hpp"
#include "storage/format/zone_plan.hpp"

namespace ebb::test {

/// Zones that a snapshot stores itself, from `offset` of its packed bytes on.
struct PackedZones {
  storage::ZoneRange zones;
  std::uint64_t offset = 0;
};

/// The map of a snapshot that stores all zones, each region at the next multiple of 4096.
inline storage::ZoneMap full_map(storage::ZoneMap::Source own, std::vector<storage::ZoneMap::Region> regions,
                                 std::vector<storage::Checksum> sums) {
  storage::ZoneMap out{{own}, std::move(regions), {}, std::move(sums)};
  std::uint64_t& packed = out.sources[0].packed_bytes = 0;
  for (const storage::ZoneRange& region : storage::all_zones(out.regions)) {
    out.extents.push_back({region, 0, packed});
    packed += os::round_up(out.regions[region.region].bytes);
  }
  return out;
}

/// The map of a snapshot that stores the `dirty` zones, whose checksums are `sums`, and has all others where `before`
/// has them.
inline storage::ZoneMap next_map(const storage::ZoneMap& before, storage::ZoneMap::Source own,
                                 std::span<const PackedZones> dirty, std::span<const storage::Checksum> sums) {
  using Extent = storage::ZoneMap::Extent;
  storage::ZoneMap out{{own}, before.regions, {}, before.sums};
  std::vector<Extent> zones;
  const auto part = [&](const Extent& of, std::uint32_t zone) {
    const std::uint64_t zone_bytes = before.regions[of.zones.region].zone_bytes;
    return Extent{{of.zones.region, of.zones.first + zone, 1}, of.source, of.offset + zone * zone_bytes};
  };
  for (const Extent& one : before.extents)
    for (std::uint32_t zone = 0; zone < one.zones.count; ++zone) zones.push_back(part(one, zone));
  for (Extent& one : zones) ++one.source;
  const auto place = [](const Extent& one) { return std::pair(one.zones.region, one.zones.first); };
  for (const PackedZones& one : dirty) {
    for (std::uint32_t zone = 0; zone < one.zones.count; ++zone) {
      const Extent mine = part({one.zones, 0, one.offset}, zone);
      const auto at = std::ranges::lower_bound(zones, place(mine), {}, place);
      *at = mine;
      out.sums[static_cast<std::size_t>(at - zones.begin())] = sums.front();
      sums = sums.subspan(1);
    }
  }
  for (std::uint32_t source = 0; source < before.sources.size(); ++source) {
    const auto number = static_cast<std::uint32_t>(out.sources.size());
    bool named = false;
    for (Extent& one : zones) {
      if (one.source != source + 1) continue;
      one.source = number;
      named = true;
    }
    if (named) out.sources.push_back(before.sources[source]);
  }
  for (const Extent& one : zones) storage::append(out.extents, one, out.regions);
  return out;
}

}  // namespace ebb::test
