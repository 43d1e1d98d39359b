#pragma once
// The last step of a restore from a snapshot: zones of one piece after the other go to their targets.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "storage/format/stored_snapshot.hpp"
#include "store/layout.hpp"
#include "store/zone_scratches.hpp"

namespace ebb::snapshots {

using store::PlacedRegion;
using store::ZoneScratch;
using store::ZoneScratches;

/// The targets of one restore, by region of the map. Not thread-safe.
class SnapshotDelivery {
 public:
  using Chunks = std::span<const storage::ZonesInPiece>;
  /// A zone of a chunk that does not match its checksum.
  struct Mismatch {
    std::size_t chunk = 0;
    std::uint32_t zone = 0;  // from the chunk's first on
  };

  /// `on`: the caller's stream; none: one that comes after what the legacy default stream holds.
  SnapshotDelivery(std::shared_ptr<device::Device> device, ZoneScratches& scratches,
                   const storage::StoredSnapshot& snapshot, std::span<const PlacedRegion> regions,
                   std::optional<device::StreamId> on);
  SnapshotDelivery(const SnapshotDelivery&) = delete;
  ~SnapshotDelivery();

  /// Whether all targets of these are device memory in which zones can be placed.
  bool on_device(Chunks chunks) const;
  /// The zones of a piece in host memory: all are checked, then all are copied. `piece` may change afterwards.
  Result<std::optional<Mismatch>> place(Chunks chunks, const std::byte* piece);
  /// The same on the device, for a piece in its memory.
  Result<std::optional<Mismatch>> place_on_device(Chunks chunks, const std::byte* piece);
  /// The stream of the copies, once something was placed. They are complete.
  device::StreamId stream() const { return stream_.value_or(device::kLegacyStream); }

 private:
  struct Region {
    std::byte* memory = nullptr;
    bool on_device = false;
  };
  /// Bytes of a piece in slots as large as a zone, from the first of some chunks to the last: one job sums them all,
  /// because a job for each zone would take as long as that zone, one after the other. A short zone may have no slot.
  struct Stretch {
    std::size_t end = 0;  // of its chunks
    std::uint64_t offset = 0, zone_bytes = 0, slots = 0;
    std::size_t first = 0;  // its first sum
  };
  std::vector<Stretch> stretches_of(Chunks chunks) const;
  Result<void> begin();
  Result<void> finish();
  Result<void> make_room(std::size_t zones);
  Result<std::optional<Mismatch>> check_on_device(Chunks chunks, std::span<const Stretch> stretches,
                                                  const std::byte* piece);
  Result<void> scatter(Chunks chunks, const std::byte* piece);

  const std::shared_ptr<device::Device> device_;
  ZoneScratches& scratches_;
  const storage::StoredSnapshot& snapshot_;
  std::vector<Region> regions_;
  std::optional<device::StreamId> stream_;
  const bool given_;
  std::optional<device::EventId> event_;
  std::unique_ptr<ZoneScratch> scratch_;
};

}  // namespace ebb::snapshots
