#pragma once
// How the memory of a program, and the pieces that are stored of it, are numbered in the map of a snapshot. It is
// stored beside the map, as docs/format.md says under "Snapshots".
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ebbtide/error.hpp"
#include "storage/format/zone_map.hpp"

namespace ebb::storage {

struct SnapshotLayout {
  /// A region of the map is a part of a region of the program: memory that begins or ends within a page has a part
  /// before its first whole page and one after its last, so that zones of the part between are whole pages.
  struct RegionPart {
    std::uint32_t region = 0;  // as the program calls it
    std::uint64_t at = 0;      // where the part begins in that region
    bool operator==(const RegionPart&) const = default;
  };
  std::vector<RegionPart> parts;           // of each region of the map; those of one region in order, without gaps
  std::vector<std::uint64_t> piece_bytes;  // of each source of the map: what is at `offset` is in piece offset / bytes
  bool operator==(const SnapshotLayout&) const = default;
};

/// Empty, or why a layout cannot belong to a map (that has nothing wrong itself).
std::string misfit(const SnapshotLayout& layout, const ZoneMap& map);

std::vector<std::byte> encode(const SnapshotLayout& layout);
/// Allocates no more than a small multiple of the given bytes. Error damaged: what is wrong. Whether it belongs to a
/// map is for misfit() to say.
Result<SnapshotLayout> parse_layout(std::span<const std::byte> bytes);

}  // namespace ebb::storage
