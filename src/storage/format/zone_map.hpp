#pragma once
// The map of a snapshot: where the bytes of each zone of the memory are, and a checksum for each zone, as
// docs/format.md says under "Snapshots". A snapshot stores only the zones that were dirty, packed; the map names them
// and, in older snapshots, all others. Sources are named by the place of the bytes themselves, so no reader ever
// follows a chain.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "storage/format/record.hpp"

namespace ebb::storage {

inline constexpr std::uint32_t kMinZone = 4096;         // bytes of a zone: a power of two, from this
inline constexpr std::uint32_t kMaxZone = 64 << 20;     // to this
inline constexpr std::uint64_t kMaxZones = 0xffffffff;  // of one map

/// Zones of one region that follow each other. Ranges are ordered by region, then by zone.
struct ZoneRange {
  std::uint32_t region = 0;  // its place in ZoneMap::regions
  std::uint32_t first = 0, count = 0;
  bool operator==(const ZoneRange&) const = default;
};

struct ZoneMap {
  struct Region {
    std::uint64_t bytes = 0;
    std::uint32_t zone_bytes = 0;  // the last zone has what is left
    bool operator==(const Region&) const = default;

    std::uint64_t zones() const { return bytes / zone_bytes + (bytes % zone_bytes != 0); }
    /// Where a zone begins in the region, or the region's end.
    std::uint64_t begin(std::uint64_t zone) const { return zone < zones() ? zone * std::uint64_t{zone_bytes} : bytes; }
    std::uint64_t bytes_of(std::uint64_t first, std::uint64_t count) const {
      return begin(first + count) - begin(first);
    }
  };
  /// A snapshot whose packed bytes the map names. The id, not the version, says which one: a version that is dropped
  /// and written again has another id.
  struct Source {
    Version version = 0;
    SnapshotId id;
    std::uint64_t packed_bytes = 0;  // all that it stores; whole blocks of 4096
    bool operator==(const Source&) const = default;
  };
  /// These zones are in the source from `offset` on, one behind the other.
  struct Extent {
    ZoneRange zones;
    std::uint32_t source = 0;
    std::uint64_t offset = 0;  // a multiple of 4096
    bool operator==(const Extent&) const = default;
  };

  std::vector<Source> sources;  // first the snapshot itself, then those that have zones in the map, latest cut first
  std::vector<Region> regions;
  std::vector<Extent> extents;  // ascending; each zone of each region is in exactly one
  std::vector<Checksum> sums;   // one for each zone, region after region
  bool operator==(const ZoneMap&) const = default;

  const Source& own() const { return sources.front(); }
};

/// Empty, or why these cannot be the regions of a map.
std::string misfit(std::span<const ZoneMap::Region> regions);
/// Empty, or what is wrong with a map: every rule of the format. What parse_zone_map() returns has nothing wrong.
std::string misfit(const ZoneMap& map);

/// The bytes of an encoded map with these counts.
std::uint64_t zone_map_bytes(std::uint64_t sources, std::uint64_t regions, std::uint64_t extents, std::uint64_t zones);
/// Throws std::logic_error for what misfit() refuses.
std::vector<std::byte> encode(const ZoneMap& map);
/// Allocates no more than a small multiple of the given bytes. Error damaged: what is wrong.
Result<ZoneMap> parse_zone_map(std::span<const std::byte> bytes);

}  // namespace ebb::storage
