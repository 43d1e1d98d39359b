#include "storage/format/zone_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "os/files.hpp"

namespace ebb::storage {
namespace {

using Extent = ZoneMap::Extent;
using Region = ZoneMap::Region;

void demand_good(const ZoneMap& map) {
  if (const std::string wrong = misfit(map); !wrong.empty()) throw std::logic_error("a zone map " + wrong);
}

// The place of the checksum of each region's first zone, and the number of all.
std::vector<std::uint64_t> first_sums(std::span<const Region> regions) {
  std::vector<std::uint64_t> out{0};
  out.reserve(regions.size() + 1);
  for (const Region& region : regions) out.push_back(out.back() + region.zones());
  return out;
}

void demand_zones(std::span<const Region> regions, std::span<const ZoneRange> zones) {
  for (const ZoneRange& one : zones) {
    if (one.region >= regions.size() || one.count == 0 ||
        std::uint64_t{one.first} + one.count > regions[one.region].zones()) {
      throw std::logic_error("zones that are not in the regions");
    }
  }
}

// Calls `found` for each extent's part in a range, with the part as an extent.
template <class Found>
void for_extents_in(const ZoneMap& map, const ZoneRange& range, Found&& found) {
  const auto ends_before = [](const Extent& extent, const ZoneRange& zones) {
    return extent.zones.region < zones.region ||
           (extent.zones.region == zones.region && extent.zones.first + extent.zones.count <= zones.first);
  };
  auto extent = std::lower_bound(map.extents.begin(), map.extents.end(), range, ends_before);
  for (std::uint32_t zone = range.first; zone < range.first + range.count; ++extent) {
    const std::uint32_t skipped = zone - extent->zones.first;
    const std::uint32_t count = std::min(extent->zones.count - skipped, range.first + range.count - zone);
    found(Extent{{range.region, zone, count},
                 extent->source,
                 extent->offset + std::uint64_t{skipped} * map.regions[range.region].zone_bytes});
    zone += count;
  }
}

}  // namespace

void append(std::vector<Extent>& to, const Extent& extent, std::span<const Region> regions) {
  if (!to.empty()) {
    Extent& last = to.back();
    const bool follows = last.zones.region == extent.zones.region && last.source == extent.source &&
                         last.zones.first + last.zones.count == extent.zones.first;
    if (follows &&
        last.offset + std::uint64_t{last.zones.count} * regions[last.zones.region].zone_bytes == extent.offset) {
      last.zones.count += extent.zones.count;
      return;
    }
  }
  to.push_back(extent);
}

std::vector<ZoneRange> all_zones(std::span<const Region> regions) {
  std::vector<ZoneRange> out;
  for (std::uint32_t i = 0; i < regions.size(); ++i) {
    if (regions[i].bytes != 0) out.push_back({i, 0, static_cast<std::uint32_t>(regions[i].zones())});
  }
  return out;
}

ZonePlan plan_restore(const ZoneMap& map) { return plan_restore(map, all_zones(map.regions)); }

ZonePlan plan_restore(const ZoneMap& map, std::span<const ZoneRange> zones) {
  demand_good(map);
  demand_zones(map.regions, zones);
  const auto sums = first_sums(map.regions);
  struct Placed {
    std::uint32_t source;
    ZonePiece piece;
  };
  std::vector<Placed> placed;
  for (const ZoneRange& range : zones) {
    const Region& region = map.regions[range.region];
    for_extents_in(map, range, [&](const Extent& part) {
      placed.push_back({part.source,
                        {part.zones, sums[range.region] + part.zones.first, region.begin(part.zones.first),
                         region.bytes_of(part.zones.first, part.zones.count), part.offset}});
    });
  }
  std::ranges::stable_sort(placed, {}, [](const Placed& one) { return std::tuple(one.source, one.piece.offset); });

  ZonePlan out;
  out.pieces.reserve(placed.size());
  for (const auto& [source, piece] : placed) {
    ZoneRead* last = out.reads.empty() ? nullptr : &out.reads.back();
    if (last == nullptr || last->source != source || piece.offset > os::round_up(last->offset + last->bytes)) {
      last = &out.reads.emplace_back(ZoneRead{source, piece.offset, 0, out.pieces.size(), 0});
    }
    last->bytes = std::max(last->bytes, piece.offset + piece.bytes - last->offset);
    ++last->pieces;
    out.pieces.push_back(piece);
  }
  for (const ZoneRead& read : out.reads) out.bytes += read.bytes;
  return out;
}

std::optional<std::uint32_t> first_mismatch(const ZoneMap& map, const ZonePiece& piece,
                                            std::span<const std::byte> bytes) {
  const Region& region = map.regions.at(piece.zones.region);
  const std::uint64_t end = piece.sum + piece.zones.count;
  if (bytes.size() != region.bytes_of(piece.zones.first, piece.zones.count) || end > map.sums.size()) {
    throw std::logic_error("these bytes are not those of the zones");
  }
  for (std::uint32_t i = 0; i < piece.zones.count; ++i) {
    const auto zone = bytes.first(region.bytes_of(piece.zones.first + i, 1));
    if (checksum_of(zone) != map.sums[piece.sum + i]) return i;
    bytes = bytes.subspan(zone.size());
  }
  return {};
}

bool same_regions(const ZoneMap& a, const ZoneMap& b) { return a.regions == b.regions; }

// By checksum alone: what has the same place has the same checksum too, and equal zones in two places need not be
// moved.
std::vector<ZoneRange> differing_zones(const ZoneMap& a, const ZoneMap& b) {
  if (!same_regions(a, b) || a.sums.size() != b.sums.size()) throw std::logic_error("maps of different memory");
  std::vector<ZoneRange> out;
  std::uint64_t sum = 0;
  for (std::uint32_t region = 0; region < a.regions.size(); ++region) {
    const auto zones = static_cast<std::uint32_t>(a.regions[region].zones());
    bool open = false;  // the last range goes on here
    for (std::uint32_t zone = 0; zone < zones; ++zone, ++sum) {
      const bool differs = a.sums[sum] != b.sums[sum];
      if (differs && open) ++out.back().count;
      if (differs && !open) out.push_back({region, zone, 1});
      open = differs;
    }
  }
  return out;
}

std::vector<ByteRange> united(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> out;
  for (const ByteRange& range : ranges) {
    if (range.bytes == 0) continue;
    if (!out.empty() && range.offset <= out.back().offset + out.back().bytes) {
      ByteRange& last = out.back();
      last.bytes = std::max(last.bytes, range.offset + range.bytes - last.offset);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<std::vector<ByteRange>> needed_bytes(const ZoneMap& map) {
  demand_good(map);
  std::vector<std::vector<ByteRange>> out(map.sources.size());
  for (const Extent& extent : map.extents) {
    const ZoneRange& zones = extent.zones;
    out[extent.source].push_back({extent.offset, map.regions[zones.region].bytes_of(zones.first, zones.count)});
  }
  for (auto& ranges : out) ranges = united(std::move(ranges));
  return out;
}

std::uint64_t total(std::span<const ByteRange> ranges) {
  std::uint64_t out = 0;
  for (const ByteRange& range : ranges) out += range.bytes;
  return out;
}

}  // namespace ebb::storage
