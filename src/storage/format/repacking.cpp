#include "storage/format/repacking.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <tuple>

#include "os/files.hpp"

namespace ebb::storage {
namespace {

std::uint64_t slot_bytes(const ZoneMap::Region& region, std::uint32_t zone) {
  return std::bit_ceil(std::max<std::uint64_t>(os::kBlock, region.bytes_of(zone, 1)));
}

bool packs_before(const Repacking::Slot& a, const Repacking::Slot& b) {
  return std::tuple(b.bytes, a.was) < std::tuple(a.bytes, b.was);
}

// Calls `found` with each zone of an extent, as an extent of one zone.
template <class Found>
void for_zones_of(const ZoneMap& map, const ZoneMap::Extent& extent, Found&& found) {
  const std::uint64_t zone_bytes = map.regions[extent.zones.region].zone_bytes;
  for (std::uint32_t i = 0; i < extent.zones.count; ++i) {
    found(ZoneMap::Extent{
        {extent.zones.region, extent.zones.first + i, 1}, extent.source, extent.offset + i * zone_bytes});
  }
}

}  // namespace

void Repacking::add(const ZoneMap& map, std::uint32_t source) {
  for (const ZoneMap::Extent& extent : map.extents) {
    if (extent.source != source) continue;
    for_zones_of(map, extent, [&](const ZoneMap::Extent& zone) {
      slots_.push_back({slot_bytes(map.regions[zone.zones.region], zone.zones.first), zone.offset, 0});
    });
  }
}

void Repacking::pack() {
  std::ranges::sort(slots_, packs_before);
  const auto twice = std::ranges::unique(slots_);
  slots_.erase(twice.begin(), twice.end());
  std::uint64_t at = 0;
  for (Slot& slot : slots_) {
    slot.at = at;
    at += slot.bytes;
  }
}

ZoneMap Repacking::moved(ZoneMap map, std::uint32_t source, const SnapshotId& now) const {
  map.sources.at(source).id = now;
  map.sources[source].packed_bytes = bytes();
  std::vector<ZoneMap::Extent> extents;
  for (const ZoneMap::Extent& extent : map.extents) {
    if (extent.source != source) {
      append(extents, extent, map.regions);
      continue;
    }
    for_zones_of(map, extent, [&](ZoneMap::Extent zone) {
      const Slot wanted{slot_bytes(map.regions[zone.zones.region], zone.zones.first), zone.offset, 0};
      const auto slot = std::ranges::lower_bound(slots_, wanted, packs_before);
      if (slot == slots_.end() || slot->was != wanted.was || slot->bytes != wanted.bytes)
        throw std::logic_error("a map that was not packed anew");
      zone.offset = slot->at;
      append(extents, zone, map.regions);
    });
  }
  map.extents = std::move(extents);
  return map;
}

}  // namespace ebb::storage
