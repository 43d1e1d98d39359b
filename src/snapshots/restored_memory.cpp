#include "snapshots/restored_memory.hpp"

#include <algorithm>
#include <tuple>

namespace ebb::snapshots {

using storage::ByteRange;
using storage::SnapshotLayout;
using storage::ZoneRange;

namespace {

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

RestoredMemory::RestoredMemory(std::span<const Target> targets) {
  for (const Target& one : targets) {
    ranges_.push_back({address_of(one.data), one.bytes});
    by_id_.push_back(&one);
  }
  ranges_ = storage::united(std::move(ranges_));
  std::ranges::sort(by_id_, {}, &Target::id);
}

std::size_t RestoredMemory::first_of(const Body& body) const {
  const auto end_of = [](const ByteRange& range) { return range.offset + range.bytes; };
  return static_cast<std::size_t>(std::ranges::upper_bound(ranges_, address_of(body.memory), {}, end_of) -
                                  ranges_.begin());
}

bool RestoredMemory::touches(const Body& body) const {
  const std::size_t i = first_of(body);
  return i < ranges_.size() && ranges_[i].offset < address_of(body.memory) + body.bytes;
}

bool RestoredMemory::covers(const Body& body) const {
  const std::size_t i = first_of(body);
  const std::uint64_t begin = address_of(body.memory);
  return i < ranges_.size() && ranges_[i].offset <= begin && begin + body.bytes <= ranges_[i].offset + ranges_[i].bytes;
}

bool RestoredMemory::is_in_place(const Protection& protection) const {
  const auto found = std::ranges::lower_bound(by_id_, protection.region, {}, &Target::id);
  return found != by_id_.end() && (*found)->id == protection.region && (*found)->data == protection.memory &&
         (*found)->bytes == protection.bytes;
}

RestoredSnapshot::RestoredSnapshot(const storage::StoredSnapshot& from, std::span<const ZoneRange> zones)
    : from_(from), zones_(zones) {
  const storage::ZonePlan plan = storage::plan_restore(from.map, zones);
  for (const storage::ZoneRead& read : plan.reads)
    for (const storage::ZonePiece& piece : std::span(plan.pieces).subspan(read.first_piece, read.pieces))
      pieces_.push_back({read.source, piece});
  std::ranges::stable_sort(pieces_, {}, [](const auto& one) { return one.zones.zones.region; });
}

RestoredZones RestoredSnapshot::zones_of(const Body& body, const Protection& protection,
                                         std::uint32_t zone_bytes) const {
  const std::vector<SnapshotLayout::RegionPart>& parts =
      from_.layout.parts;  // ascending, as they are in ProtectedMemory
  const SnapshotLayout::RegionPart part{body.region, static_cast<std::uint64_t>(body.memory - protection.memory)};
  const auto order = [](const SnapshotLayout::RegionPart& one) { return std::tuple(one.region, one.at); };
  const auto found = std::ranges::lower_bound(parts, order(part), {}, order);
  if (found == parts.end() || *found != part) return {};
  const auto region = static_cast<std::uint32_t>(found - parts.begin());
  if (from_.map.regions[region] != storage::ZoneMap::Region{body.bytes, zone_bytes}) return {};
  const auto zones = std::ranges::equal_range(zones_, region, {}, &ZoneRange::region);
  const auto pieces =
      std::ranges::equal_range(pieces_, region, {}, [](const auto& one) { return one.zones.zones.region; });
  return {{zones.begin(), zones.end()}, {pieces.begin(), pieces.end()}};
}

}  // namespace ebb::snapshots
