#include "snapshots/zone_table.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::snapshots {

using storage::ZoneMap;

MadeMap ZoneTable::add(const Cut& cut, std::uint64_t piece_bytes, std::uint64_t packed_bytes,
                       std::span<const StoredEdge> edges) {
  const ProtectedMemory& memory = *cut.memory;
  begin(cut.memory);
  by_sum_.clear();
  for (const SharedZone& one : cut.shared)
    if (one.in) place_of({one.in->source, one.in->piece_bytes, one.in->source.packed_bytes});
  for (const SharedZone& one : cut.shared)
    if (one.in) zones_[one.zone] = {place_of({one.in->source, one.in->piece_bytes}), one.offset, one.sum};
  const ZoneMap::Source own{cut.version, cut.id, packed_bytes};
  const auto mine = static_cast<std::uint32_t>(sources_.size());
  std::uint64_t stored = 0;
  for (const StoredPiece& piece : cut.pieces) stored += piece.bytes;
  sources_.push_back({own, piece_bytes, stored});
  for (const StoredPiece& piece : cut.pieces)
    for (std::size_t i = 0; i < piece.zones.size(); ++i)
      zones_[piece.zones[i]] = {mine, piece.piece * piece_bytes + i * memory.zone_bytes(), piece.sums[i]};
  for (const SharedZone& one : cut.shared)
    if (!one.in) zones_[one.zone] = {mine, one.offset, one.sum};
  drop_unused();
  count();

  MadeMap made;
  for (auto source = sources_.rbegin(); source != sources_.rend(); ++source) {
    made.map.sources.push_back(source->source);
    made.piece_bytes.push_back(source->piece_bytes);
  }
  const auto last = static_cast<std::uint32_t>(sources_.size() - 1);
  const std::uint64_t zone_bytes = memory.zone_bytes();
  for (const MapRegion& part : memory.parts()) {
    const auto region = static_cast<std::uint32_t>(made.map.regions.size());
    made.map.regions.push_back({part.bytes, memory.zone_bytes()});
    if (part.bytes == 0) continue;
    if (part.is_edge()) {
      made.map.extents.push_back({{region, 0, 1}, 0, edges.front().offset});
      made.map.sums.push_back(edges.front().sum);
      edges = edges.subspan(1);
      continue;
    }
    const auto count = static_cast<std::uint32_t>(made.map.regions.back().zones());
    for (std::uint32_t i = 0; i < count; ++i) {
      const Zone& zone = zones_[*part.first + i];
      if (zone.source == kNowhere) throw std::logic_error("a zone of protected memory is stored nowhere");
      const std::uint32_t source = last - zone.source;
      ZoneMap::Extent* const before = made.map.extents.empty() ? nullptr : &made.map.extents.back();
      if (before != nullptr && before->zones.region == region && before->source == source &&
          before->offset + before->zones.count * zone_bytes == zone.offset)
        ++before->zones.count;
      else
        made.map.extents.push_back({{region, i, 1}, source, zone.offset});
      made.map.sums.push_back(zone.sum);
    }
  }
  return made;
}

void ZoneTable::begin(const std::shared_ptr<const ProtectedMemory>& memory) {
  if (memory_ == memory) return;
  memory_ = memory;
  zones_.assign(memory->zones(), {});
  sources_.clear();
  by_sum_.clear();
}

void ZoneTable::index() {
  if (!by_sum_.empty()) return;
  for (std::uint32_t zone = 0; zone < zones_.size(); ++zone)
    if (zones_[zone].source != kNowhere) by_sum_.push_back(zone);
  std::ranges::sort(by_sum_, {}, [&](std::uint32_t zone) { return zones_[zone].sum; });
}

std::optional<SharedZone> ZoneTable::equal(const ProtectedMemory& memory, std::uint32_t zone,
                                           const storage::Checksum& sum) {
  if (memory_.get() != &memory || sources_.size() >= planner::ChainBounds{}.sources) return {};
  index();
  const auto found = std::ranges::lower_bound(by_sum_, sum, {}, [&](std::uint32_t other) { return zones_[other].sum; });
  if (found == by_sum_.end() || zones_[*found].sum != sum) return {};
  const Zone& other = zones_[*found];
  const Source& in = sources_[other.source];
  return SharedZone{zone, other.offset, sum, StoredSource{in.source, in.piece_bytes}};
}

std::uint32_t ZoneTable::place_of(const Source& source) {
  const auto cut_of = [](const Source& one) { return one.source.id.cut; };
  const auto at = std::ranges::lower_bound(sources_, cut_of(source), {}, cut_of);
  const auto place = static_cast<std::uint32_t>(at - sources_.begin());
  if (at != sources_.end() && at->source.id == source.source.id) return place;
  sources_.insert(at, source);
  for (Zone& zone : zones_)
    if (zone.source != kNowhere && zone.source >= place) ++zone.source;
  return place;
}

void ZoneTable::adopt(const std::shared_ptr<const ProtectedMemory>& memory, std::uint32_t first,
                      const storage::StoredSnapshot& from, std::span<const RestoredZones::StoredZones> pieces) {
  begin(memory);
  by_sum_.clear();
  for (const auto& [number, piece] : pieces) {
    const ZoneMap::Source& source = from.map.sources[number];
    const std::uint32_t place = place_of({source, from.layout.piece_bytes[number], source.packed_bytes});
    for (std::uint32_t i = 0; i < piece.zones.count; ++i) {
      Zone& zone = zones_[first + piece.zones.first + i];
      if (zone.source != kNowhere) --sources_[zone.source].zones;
      zone = {place, piece.offset + std::uint64_t{i} * memory->zone_bytes(), from.map.sums[piece.sum + i]};
    }
    sources_[place].zones += piece.zones.count;
  }
}

// Keeps the last one, which is the snapshot's own.
void ZoneTable::drop_unused() {
  std::vector<std::uint8_t> used(sources_.size());
  used.back() = 1;
  for (const Zone& zone : zones_)
    if (zone.source != kNowhere) used[zone.source] = 1;
  std::vector<std::uint32_t> place(sources_.size());
  std::vector<Source> left;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    place[i] = static_cast<std::uint32_t>(left.size());
    if (used[i]) left.push_back(sources_[i]);
  }
  if (left.size() == sources_.size()) return;
  for (Zone& zone : zones_)
    if (zone.source != kNowhere) zone.source = place[zone.source];
  sources_ = std::move(left);
}

std::vector<planner::SnapshotSource> ZoneTable::sources(const ProtectedMemory& memory,
                                                        std::span<const std::uint8_t> dirty) const {
  if (memory_.get() != &memory) return {};
  // Few of many zones are dirty, so only those are looked at.
  std::vector<std::uint64_t> needed;
  for (const Source& one : sources_) needed.push_back(one.zones);
  for (std::size_t z = 0; z < zones_.size(); ++z)
    if (dirty[z] && zones_[z].source != kNowhere) --needed[zones_[z].source];
  std::vector<planner::SnapshotSource> found;
  for (std::size_t i = 0; i < sources_.size(); ++i)
    found.push_back({sources_[i].source.version, sources_[i].stored, needed[i] * memory.zone_bytes()});
  std::erase_if(found, [](const planner::SnapshotSource& one) { return one.needed == 0; });
  for (planner::SnapshotSource& one : found) one.stored = std::max(one.stored, one.needed);
  return found;
}

void ZoneTable::count() {
  for (Source& one : sources_) one.zones = 0;
  for (const Zone& zone : zones_)
    if (zone.source != kNowhere) ++sources_[zone.source].zones;
}

std::vector<storage::SnapshotId> ZoneTable::ids() const {
  std::vector<storage::SnapshotId> ids;
  for (const Source& one : sources_) ids.push_back(one.source.id);
  return ids;
}

}  // namespace ebb::snapshots
