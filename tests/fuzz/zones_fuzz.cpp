#include <stdexcept>

#include "tests/fuzz/targets.hpp"
#include "tests/storage/zone_map_samples.hpp"

namespace ebb::fuzz {
namespace {

void insist(bool holds) {
  if (!holds) throw std::logic_error("a zone map was read that cannot be");
}

void read_zones(std::span<const std::byte> bytes) {
  const auto map = storage::parse_zone_map(bytes);
  if (!map) {
    insist(map.error().code == Errc::damaged && !map.error().message.empty());
    return;
  }
  insist(std::ranges::equal(storage::encode(*map), bytes));
  const storage::ZonePlan plan = storage::plan_restore(*map);
  std::uint64_t zones = 0, pieces = 0;
  for (const storage::ZoneRead& read : plan.reads) {
    const std::uint64_t stored = map->sources.at(read.source).packed_bytes;
    insist(read.offset <= stored && read.bytes <= stored - read.offset && read.first_piece == pieces);
    pieces += read.pieces;
  }
  insist(pieces == plan.pieces.size());
  for (const storage::ZonePiece& piece : plan.pieces) {
    const std::uint64_t region = map->regions.at(piece.zones.region).bytes;
    insist(piece.at <= region && piece.bytes <= region - piece.at);
    zones += piece.zones.count;
  }
  insist(zones == map->sums.size());
  insist(storage::differing_zones(*map, *map).empty());
  const auto needed = storage::needed_bytes(*map);
  insist(needed.size() == map->sources.size());
}

}  // namespace

void zones(const std::uint8_t* data, std::size_t size) {
  const auto given = std::as_bytes(std::span(data, size));
  test::Bytes bytes(given.begin(), given.end());
  read_zones(bytes);
  test::seal_zone_map(bytes);
  read_zones(bytes);
}

}  // namespace ebb::fuzz
