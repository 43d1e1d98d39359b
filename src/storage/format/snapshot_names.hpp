#pragma once
// Where a snapshot is stored: its map in the history itself, and its packed zones in pieces, each a checkpoint of
// version 0 in a hidden history of its own, which is named by the snapshot's id and the number of the piece.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "storage/format/record.hpp"

namespace ebb::storage {

/// Regions of a map's checkpoint. A program's checkpoint that has both is refused.
inline constexpr std::uint32_t kMapRegion = 0xFFFFFFFF;     // an encoded ZoneMap
inline constexpr std::uint32_t kLayoutRegion = 0xFFFFFFFE;  // how its regions make up the program's

/// Whether regions (with an `id` each) have these ids, and there are no others.
template <class Regions>
bool ids_of_snapshot(const Regions& regions) {
  const auto has = [&](std::uint32_t id) { return regions[0].id == id || regions[1].id == id; };
  return regions.size() == 2 && has(kMapRegion) && has(kLayoutRegion);
}
inline bool is_snapshot(const CheckpointInfo& stored) { return ids_of_snapshot(stored.regions); }

/// Between a history's name and a snapshot's id, in the names of its pieces. Such names are the store's own.
inline constexpr std::string_view kSnapshotMark = kReservedForSnapshots;
inline constexpr Version kPieceVersion = 0;

struct PieceName {
  std::string history;  // that has the snapshot
  SnapshotId id;
  std::uint64_t piece = 0;
  bool operator==(const PieceName&) const = default;

  /// What the names of all pieces of a history begin with.
  static std::string prefix(std::string_view history) { return std::string(history).append(kSnapshotMark); }
  /// "model/.ebbtide-snapshot/0123456789abcdef-0123456789abcdef/3"
  std::string text() const {
    char hex[40];
    std::snprintf(hex, sizeof hex, "%016llx-%016llx/", static_cast<unsigned long long>(id.cut),
                  static_cast<unsigned long long>(id.random));
    return prefix(history) + hex + std::to_string(piece);
  }
};

/// What a history's name says; nothing: it is none of a piece.
inline std::optional<PieceName> parse_piece_name(std::string_view name) {
  const std::size_t mark = name.rfind(kSnapshotMark);
  if (mark == name.npos) return {};
  PieceName found{std::string(name.substr(0, mark)), {}, 0};
  const char* at = name.data() + mark + kSnapshotMark.size();
  const char* const end = name.data() + name.size();
  const auto number = [&](std::uint64_t& to, int base, char then) {
    const auto [stop, failed] = std::from_chars(at, end, to, base);
    const bool good = failed == std::errc{} && (then == 0 ? stop == end : stop != end && *stop == then);
    at = stop + (good && then != 0 ? 1 : 0);
    return good;
  };
  const bool good = number(found.id.cut, 16, '-') && number(found.id.random, 16, '/') && number(found.piece, 10, 0);
  return good && found.text() == name ? std::optional(found) : std::nullopt;  // each piece has one name
}

}  // namespace ebb::storage
