#pragma once
// Packs anew those packed bytes of a snapshot that maps still need. No I/O here.
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/format/zone_plan.hpp"

namespace ebb::storage {

/// The zones of one source that stay, and where they lie afterwards.
///
/// Not thread-safe. add() what every map needs, then pack(), then the rest.
class Repacking {
 public:
  /// A zone's place: a power of two of bytes, so that none ends up in two pieces.
  struct Slot {
    std::uint64_t bytes = 0;
    std::uint64_t was = 0;  // its offset in the old packed bytes
    std::uint64_t at = 0;   // and in the new ones
    auto operator<=>(const Slot&) const = default;
  };

  void add(const ZoneMap& map, std::uint32_t source);
  void pack();
  /// The largest first, so that every offset is a multiple of what is there; those of one size in their old order.
  std::span<const Slot> slots() const { return slots_; }
  std::uint64_t bytes() const { return slots_.empty() ? 0 : slots_.back().at + slots_.back().bytes; }
  /// The map with the bytes of its source in `now`. std::logic_error if it was not added.
  ZoneMap moved(ZoneMap map, std::uint32_t source, const SnapshotId& now) const;

 private:
  std::vector<Slot> slots_;
};

}  // namespace ebb::storage
