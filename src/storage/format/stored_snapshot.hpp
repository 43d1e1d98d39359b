#pragma once
// A snapshot as it is found in a store: its map, its layout, and what the program gave.
#include <cstdint>
#include <span>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "storage/format/snapshot_layout.hpp"
#include "storage/format/zone_plan.hpp"

namespace ebb::storage {

/// A snapshot as its map describes it. What the map says is consistent in itself; whether the pieces are there is not
/// known.
struct StoredSnapshot {
  ZoneMap map;
  SnapshotLayout layout;
  CheckpointInfo info;  // as the program sees it
};

/// Zones of one region of a map that lie in one piece.
struct ZonesInPiece {
  std::uint32_t source = 0;  // in ZoneMap::sources
  std::uint64_t piece = 0;   // its number
  ZonePiece zones;           // `offset`: in the piece
};
/// What a plan reads, by source and piece: each piece comes once. The layout must fit the map.
std::vector<ZonesInPiece> zones_by_piece(const StoredSnapshot& snapshot, const ZonePlan& plan);

/// Of the regions kMapRegion and kLayoutRegion; `stored` describes their checkpoint. Error damaged: what is wrong.
Result<StoredSnapshot> parse_snapshot(std::span<const std::byte> map, std::span<const std::byte> layout,
                                      const CheckpointInfo& stored);

}  // namespace ebb::storage
