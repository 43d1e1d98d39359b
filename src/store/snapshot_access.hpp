#pragma once
// What the store asks of the room that reads snapshots, about a version that is one. Nothing else in the store knows
// more of a snapshot than that a checkpoint is its map; the room above defines these
// (src/snapshots/snapshot_access.cpp).
#include <functional>
#include <span>

#include "ebbtide/store.hpp"
#include "planner/ids.hpp"
#include "storage/format/stored_snapshot.hpp"

namespace ebb::store {

class Engine;

/// These zones of a snapshot were copied to their targets.
using Restored =
    std::function<void(const storage::StoredSnapshot& snapshot, std::span<const storage::ZoneRange> zones)>;

/// Each as SnapshotReader has it.
struct SnapshotAccess {
  static Result<CheckpointInfo> info(Engine& engine, planner::HistoryId history, Version version,
                                     const RestoreOptions& options);
  static Result<void> check(Engine& engine, planner::HistoryId history, Version version, const RestoreOptions& options);
  static Result<void> restore(Engine& engine, planner::HistoryId history, Version version,
                              std::span<const Target> targets, const RestoreOptions& options, const Restored& restored);
};

}  // namespace ebb::store
