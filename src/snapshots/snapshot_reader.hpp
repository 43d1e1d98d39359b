#pragma once
// The way back from a snapshot: its map, and the pieces that the map names.
#include <memory>
#include <optional>
#include <span>

#include "device/device.hpp"
#include "planner/ids.hpp"
#include "snapshots/snapshot_delivery.hpp"
#include "storage/format/snapshot_names.hpp"
#include "storage/format/stored_snapshot.hpp"
#include "store/engine.hpp"

namespace ebb::snapshots {

using store::Engine;
using store::Restored;

/// Reads one version that is a snapshot. It reads one piece at a time, each once, and borrows the cache's replica
/// where it can. Not copyable; for one call, by one thread.
class SnapshotReader {
 public:
  /// Uses these of the options: keep, timeout, interrupted, have, stream.
  SnapshotReader(Engine& engine, planner::HistoryId history, Version version, const RestoreOptions& options);
  SnapshotReader(const SnapshotReader&) = delete;
  ~SnapshotReader();

  /// None: it is an ordinary checkpoint. The version and its hints stay. Errors: those of History::restore.
  Result<std::optional<storage::StoredSnapshot>> load();
  Result<CheckpointInfo> info();
  /// Whether every piece that it needs is there and intact: what is in files is read. Errors: damaged, lost (a piece is
  /// not there), timed_out, io_error, closed.
  Result<void> check();
  /// As History::restore; with a stream as well it returns when all is copied. No zone is copied to its target before
  /// its bytes have matched their checksum. `restored` is called when all are there, and before the version is
  /// consumed.
  Result<void> restore(std::span<const Target> targets, const Restored& restored = {});

 private:
  struct Read;

  Result<std::optional<storage::StoredSnapshot>> load(Version version, std::unique_ptr<Read>& read);
  Result<storage::StoredSnapshot> demand();
  Error written_anew();
  Result<std::vector<storage::ZoneRange>> zones_to_read(const storage::StoredSnapshot& wanted);
  /// The size of a piece in bytes. Error damaged: the map places a chunk beyond its end.
  Result<std::uint64_t> bytes_of_piece(planner::HistoryId piece, const storage::StoredSnapshot& from,
                                       std::span<const storage::ZonesInPiece> chunks);
  Result<void> restore_piece(const storage::StoredSnapshot& from, std::span<const storage::ZonesInPiece> chunks,
                             SnapshotDelivery& delivery);
  Result<void> deliver(const storage::StoredSnapshot& snapshot, std::span<const PlacedRegion> regions,
                       std::span<const storage::ZoneRange> zones, std::optional<device::StreamId> stream);
  void hint_pieces(const storage::StoredSnapshot& of, bool wanted);
  void hint_piece(const storage::StoredSnapshot& of, const storage::ZonesInPiece& chunk, bool wanted);
  Result<void> consume();
  std::string piece_name(const storage::StoredSnapshot& of, const storage::ZonesInPiece& chunk);
  /// `why`, of the zone of this number in the chunk.
  Error failed(const storage::StoredSnapshot& of, const storage::ZonesInPiece& chunk, std::uint32_t zone,
               const Error& why);
  std::optional<Error> asked_to_stop();

  Engine& engine_;
  const planner::HistoryId history_;
  const Version version_;
  const RestoreOptions options_;
  Interrupt stop_;              // as the caller's, and when its time is over
  planner::Time asked_ = 0;     // when stop_ was asked last
  std::unique_ptr<Read> read_;  // the map's bytes, as load() found them
};

}  // namespace ebb::snapshots
