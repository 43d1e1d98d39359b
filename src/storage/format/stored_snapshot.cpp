#include "storage/format/stored_snapshot.hpp"

#include <algorithm>

#include "os/files.hpp"

namespace ebb::storage {
namespace {

// What the program gave: a region has all parts that follow each other under its id.
CheckpointInfo described(const ZoneMap& map, const SnapshotLayout& layout) {
  CheckpointInfo info;
  for (std::size_t i = 0; i < layout.parts.size(); ++i) {
    if (info.regions.empty() || info.regions.back().id != layout.parts[i].region) {
      const std::size_t end = info.regions.empty() ? 0 : info.regions.back().offset + info.regions.back().bytes;
      info.regions.push_back({layout.parts[i].region, 0, end});
    }
    info.regions.back().bytes += map.regions[i].bytes;
  }
  for (const ZoneMap::Source& source : std::span(map.sources).subspan(1)) info.leans_on.push_back(source.version);
  std::ranges::sort(info.leans_on);
  const auto twice = std::ranges::unique(info.leans_on);
  info.leans_on.erase(twice.begin(), twice.end());
  return info;
}

// Bytes of its own zones. Its pieces may be filled in part, and zones may share a place.
std::uint64_t stored_zones(const ZoneMap& map) {
  std::uint64_t bytes = 0;
  const auto needed = needed_bytes(map);
  for (const ByteRange& range : needed.front()) bytes += os::round_up(range.bytes);
  return bytes;
}

}  // namespace

Result<StoredSnapshot> parse_snapshot(std::span<const std::byte> map_bytes, std::span<const std::byte> layout_bytes,
                                      const CheckpointInfo& stored) {
  auto map = parse_zone_map(map_bytes);
  if (!map) return map.error();
  auto layout = parse_layout(layout_bytes);
  if (!layout) return layout.error();
  if (const std::string wrong = misfit(*layout, *map); !wrong.empty())
    return Error{Errc::damaged, "the layout of the snapshot " + wrong};
  StoredSnapshot found{std::move(*map), std::move(*layout), {}};
  found.info = described(found.map, found.layout);
  found.info.metadata = stored.metadata;
  found.info.bytes = stored.bytes + stored_zones(found.map);
  return found;
}

std::vector<ZonesInPiece> zones_by_piece(const StoredSnapshot& snapshot, const ZonePlan& plan) {
  std::vector<ZonesInPiece> out;
  const auto add = [&](std::uint32_t source, const ZonePiece& from) {
    const ZoneMap::Region& region = snapshot.map.regions[from.zones.region];
    const std::uint64_t piece_bytes = snapshot.layout.piece_bytes[source];
    for (std::uint32_t i = 0; i < from.zones.count; ++i) {
      const std::uint64_t offset = from.offset + std::uint64_t{i} * region.zone_bytes;
      const std::uint32_t zone = from.zones.first + i;
      const std::uint64_t piece = offset / piece_bytes;
      if (i == 0 || out.back().piece != piece) {
        out.push_back(
            {source, piece, {{from.zones.region, zone, 0}, from.sum + i, region.begin(zone), 0, offset % piece_bytes}});
      }
      out.back().zones.zones.count += 1;
      out.back().zones.bytes += region.bytes_of(zone, 1);
    }
  };
  for (const ZoneRead& read : plan.reads) {
    for (std::size_t i = 0; i < read.pieces; ++i) add(read.source, plan.pieces[read.first_piece + i]);
  }
  // In order already, but where places overlap, which only a map does that no writer made.
  std::ranges::stable_sort(out, {}, [](const ZonesInPiece& one) { return std::pair(one.source, one.piece); });
  return out;
}

}  // namespace ebb::storage
