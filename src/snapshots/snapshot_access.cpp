#include "store/snapshot_access.hpp"

#include "snapshots/snapshot_reader.hpp"

namespace ebb {

using snapshots::SnapshotReader;
using store::SnapshotAccess;

Result<CheckpointInfo> SnapshotAccess::info(store::Engine& engine, planner::HistoryId history, Version version,
                                            const RestoreOptions& options) {
  return SnapshotReader(engine, history, version, options).info();
}

Result<void> SnapshotAccess::check(store::Engine& engine, planner::HistoryId history, Version version,
                                   const RestoreOptions& options) {
  return SnapshotReader(engine, history, version, options).check();
}

Result<void> SnapshotAccess::restore(store::Engine& engine, planner::HistoryId history, Version version,
                                     std::span<const Target> targets, const RestoreOptions& options,
                                     const store::Restored& restored) {
  return SnapshotReader(engine, history, version, options).restore(targets, restored);
}

}  // namespace ebb
