#pragma once
// What is worked out from zone maps: what a restore reads, how two versions differ, and which bytes a map needs of its
// sources. Pure functions; maps must satisfy misfit() and regions must be the same where several are given, otherwise
// std::logic_error.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "storage/format/zone_map.hpp"

namespace ebb::storage {

/// Zones of one region that lie together in one source.
struct ZonePiece {
  ZoneRange zones;
  std::uint64_t sum = 0;     // the place of the first zone's checksum in ZoneMap::sums
  std::uint64_t at = 0;      // in the region
  std::uint64_t bytes = 0;   // of these zones
  std::uint64_t offset = 0;  // in the source
  bool operator==(const ZonePiece&) const = default;
};

/// A range of a source's packed bytes. It begins at a multiple of 4096.
struct ZoneRead {
  std::uint32_t source = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::size_t first_piece = 0, pieces = 0;  // in ZonePlan::pieces: what is in these bytes
};

struct ZonePlan {
  std::vector<ZoneRead> reads;  // ascending by source and offset; no two overlap
  std::vector<ZonePiece> pieces;
  std::uint64_t bytes = 0;  // of all reads
};

/// How to restore these zones (all, if none are given). Pieces that follow each other in a source, but for less than
/// 4096 bytes, become one read; a place that several zones share is read once.
ZonePlan plan_restore(const ZoneMap& map);
ZonePlan plan_restore(const ZoneMap& map, std::span<const ZoneRange> zones);

/// The first zone of a piece (from 0 on, in the piece) whose bytes do not match its checksum, if any. `bytes` are the
/// piece's.
std::optional<std::uint32_t> first_mismatch(const ZoneMap& map, const ZonePiece& piece,
                                            std::span<const std::byte> bytes);

/// Whether memory of one map can be brought to the other zone by zone.
bool same_regions(const ZoneMap& a, const ZoneMap& b);
/// The zones in which the two memories differ, by their checksums.
std::vector<ZoneRange> differing_zones(const ZoneMap& a, const ZoneMap& b);

/// Adds zones behind those of a map, to its last extent where they follow that one.
void append(std::vector<ZoneMap::Extent>& to, const ZoneMap::Extent& extent, std::span<const ZoneMap::Region> regions);
/// All zones of the regions, ascending.
std::vector<ZoneRange> all_zones(std::span<const ZoneMap::Region> regions);

struct ByteRange {
  std::uint64_t offset = 0, bytes = 0;
  bool operator==(const ByteRange&) const = default;
};
/// For each source, in the order of ZoneMap::sources: the parts of its packed bytes that the map needs, ascending and
/// apart from each other.
std::vector<std::vector<ByteRange>> needed_bytes(const ZoneMap& map);
/// The union of the ranges, as above: for what several maps need of one source.
std::vector<ByteRange> united(std::vector<ByteRange> ranges);
std::uint64_t total(std::span<const ByteRange> ranges);

}  // namespace ebb::storage
