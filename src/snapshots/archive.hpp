#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "snapshots/cut.hpp"
#include "snapshots/zone_table.hpp"
#include "store/engine.hpp"

namespace ebb::snapshots {

inline constexpr Seconds kRoomTimeout{10};  // for memory of the cache that no transfer can free

/// Stores snapshots in the store: pieces, then the map. Pieces stay until no map names them.
///
/// Thread safety: store_piece() by the thread that drains, store_map(), leave() and tidy() by the one that archives;
/// choose() by any. The mutex guards the table, and is held while memory is allocated: no thread that answers faults
/// takes it.
/// 1. A map is written when its pieces are as durable as the store promises, and after those of all cuts before it.
class Archive {
 public:
  Archive(std::weak_ptr<store::Engine> engine, std::uint64_t piece_bytes)
      : engine_(std::move(engine)), piece_bytes_(piece_bytes) {}

  /// No call waits for room any more: also what is held up gives up.
  void stop() { stopping_ = true; }
  /// `bytes` are moved together if some of the zones are not stored.
  Result<void> store_piece(Cut& cut, std::span<std::byte> bytes, std::span<const std::uint32_t> zones);
  /// Stores the rest of the cut and its map, and returns the map's future. While it waits it calls tidy() for the
  /// snapshots that `in_flight` returns.
  using InFlight = std::function<std::vector<storage::SnapshotId>()>;
  Result<Future> store_map(Cut& cut, const InFlight& in_flight);
  /// Drops the pieces of a cut that failed.
  void leave(const Cut& cut);
  /// Drops the pieces that no live map names, nor `in_flight`, nor protected memory.
  void tidy(std::span<const storage::SnapshotId> in_flight);

  /// Once, before anything is stored: learns of the maps and pieces that other processes left, so that tidy() drops
  /// what no map names. Errors: those of reading the maps.
  Result<void> know_left();

  /// Zones of this memory, from `first` on, were restored from these zones of a snapshot: the next snapshot may lean on
  /// the sources of those. False: some of these are no longer there.
  bool adopt(const std::shared_ptr<const ProtectedMemory>& memory, std::uint32_t first,
             const storage::StoredSnapshot& from, const RestoredZones& zones);

  /// What to store beside the dirty zones. `dirty` has a value for each zone.
  struct Choice {
    bool full = false;
    std::vector<std::uint32_t> zones = {};  // also
  };
  Choice choose(const ProtectedMemory& memory, std::span<const std::uint8_t> dirty, std::size_t sources) const;

 private:
  bool share(Cut& cut, std::uint32_t zone, const storage::Checksum& sum);
  Result<void> add_piece(store::Engine& engine, Cut& cut, std::span<const std::byte> bytes, StoredPiece piece);
  CheckpointOptions waiting(std::string metadata = {}) const;
  Result<void> wait_for_pieces(store::Engine& engine, const Cut& cut, const InFlight& in_flight);
  void hold_up(const Cut& cut, std::uint64_t ask, const Error& why) const;
  void drop_pieces(store::Engine& engine, const std::string& prefix);

  const std::weak_ptr<store::Engine> engine_;
  const std::uint64_t piece_bytes_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  ZoneTable table_;                                                          // by the mutex
  std::map<Version, std::vector<storage::SnapshotId>> maps_;                 // by the mutex: what each names
  std::vector<storage::SnapshotId> stored_;                                  // by the mutex: that have pieces
  std::vector<std::pair<storage::SnapshotId, storage::SnapshotId>> shared_;  // by the mutex: a cut, and whose bytes its
                                                                             // map will name
};

}  // namespace ebb::snapshots
