#pragma once
// What a restore writes: the memory, and the zones of a snapshot that are then in it. Looking up one body takes
// logarithmic time, so a restore of many arrays takes no time for each pair of them.
#include <span>
#include <vector>

#include "ebbtide/store.hpp"
#include "snapshots/protected_memory.hpp"
#include "storage/format/stored_snapshot.hpp"

namespace ebb::snapshots {

/// The targets of one restore, which must outlive this. Constant.
class RestoredMemory {
 public:
  explicit RestoredMemory(std::span<const Target> targets);
  bool touches(const Body& body) const;
  bool covers(const Body& body) const;
  /// Calls `function` with the zones of the body that have a byte of a target.
  template <class Function>
  void for_each_in(const Body& body, std::uint32_t zone_bytes, Function&& function) const {
    for (std::size_t i = first_of(body); i < ranges_.size(); ++i) {
      const os::PageRange range{reinterpret_cast<std::byte*>(ranges_[i].offset), ranges_[i].bytes};
      const auto zones = ProtectedMemory::zones_in(body, range, zone_bytes);
      if (zones.count == 0) return;
      function(zones);
    }
  }
  /// Whether a target of this id is exactly this memory. No two have the same id.
  bool is_in_place(const Protection& protection) const;

 private:
  std::size_t first_of(const Body& body) const;  // range that ends behind the beginning of the body

  std::vector<storage::ByteRange> ranges_;  // of addresses, ascending and apart
  std::vector<const Target*> by_id_;
};

/// The zones of one region of a map, and where they were stored.
struct RestoredZones {
  struct StoredZones {
    std::uint32_t source = 0;
    storage::ZonePiece zones;
  };
  std::span<const storage::ZoneRange> zones;
  std::span<const StoredZones> pieces;
};

/// What was restored from a snapshot. `from` and `zones` must outlive this. Constant.
class RestoredSnapshot {
 public:
  RestoredSnapshot(const storage::StoredSnapshot& from, std::span<const storage::ZoneRange> zones);
  const storage::StoredSnapshot& from() const { return from_; }
  /// The zones of a body, whose protection is this; none: the snapshot numbers them otherwise, or has no such memory.
  RestoredZones zones_of(const Body& body, const Protection& protection, std::uint32_t zone_bytes) const;

 private:
  const storage::StoredSnapshot& from_;
  const std::span<const storage::ZoneRange> zones_;
  std::vector<RestoredZones::StoredZones> pieces_;  // by region
};

}  // namespace ebb::snapshots
