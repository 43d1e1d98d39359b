#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "snapshots/archiver.hpp"
#include "snapshots/device_side.hpp"
#include "snapshots/host_tracking.hpp"
#include "store/attached.hpp"
#include "store/engine.hpp"

namespace ebb::snapshots {

/// The snapshots of one store.
///
/// Thread safety: every method may be called from any thread of the process that made it; a forked child is refused.
/// protect(), unprotect(), touch() and snapshot() come one at a time, and the first two wait until no cut is in flight.
/// 1. `calls_` is held while memory is allocated and while a cut waits. No thread that answers faults takes it.
/// 2. After protect() or unprotect() all protected memory is dirty, so the next snapshot is full, and no map leans on
///    one of other regions.
/// 3. end() returns when no thread of the room is left, and no memory is watched.
class Snapshotter final : public store::Attached {
 public:
  struct Setup {
    std::shared_ptr<os::WriteWatches> watches = {};  // none: the system's
    planner::Time longest_wait = 5'000'000'000;
    bool hints = true, duplicate = true;  // as ProtectOptions
    std::uint64_t piece_bytes = 0;        // 0: as the store's caches allow
  };
  /// The engine's, or a new one that is attached to it. Errors: those of `zone` (invalid_argument), unsupported (a
  /// read-only store), out_of_memory, closed.
  static Result<std::shared_ptr<Snapshotter>> make_for(const std::shared_ptr<store::Engine>& engine, std::uint64_t zone,
                                                       Setup setup);
  /// The engine's. Error invalid_argument: nothing was ever protected.
  static Result<std::shared_ptr<Snapshotter>> of(const std::shared_ptr<store::Engine>& engine);
  ~Snapshotter() override;
  std::uint32_t zone_bytes() const { return zone_bytes_; }
  const Setup& setup() const { return setup_; }

  /// All of it, or none.
  Result<void> protect(std::span<const Target> memory, const ProtectOptions& options);
  /// One region, or all of them.
  Result<void> unprotect(std::optional<std::uint32_t> region, const Interrupt& interrupted);
  Result<void> touch(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes);
  Result<std::shared_ptr<Cut>> snapshot(Version version, const SnapshotOptions& options);
  SnapshotStats stats();
  bool in_flight(Version version) override;
  void dropped(std::optional<Version> version) override { archiver_.dropped(version); }
  /// Protected memory that is restored from a snapshot of it is clean against that one. It waits until no cut is in
  /// flight, and cuts wait for it.
  Result<void> restore(Version version, std::span<const Target> targets, const RestoreOptions& options) override;
  Result<void> settle(std::optional<Version> version, std::optional<Seconds> timeout,
                      const Interrupt& interrupted) override;
  Result<void> end(const Interrupt& interrupted) override;

 private:
  Snapshotter(std::shared_ptr<store::Engine> engine, std::uint32_t zone_bytes, Setup setup);
  Result<void> start();
  std::optional<Error> refused() const;
  Result<void> add(std::span<const Protection> made);
  void replace(std::vector<Protection> protections);
  const Protection* find(std::uint32_t region) const;
  Result<std::shared_ptr<Cut>> take(store::Engine& engine, Version version, const SnapshotOptions& options);
  void lose_track(const Error& why);
  Result<std::shared_ptr<Cut>> store_everything(store::Engine& engine, Version version, const SnapshotOptions& options);
  Result<void> wait_for_cuts(std::size_t at_most, std::optional<Seconds> timeout, const Interrupt& interrupted);
  Result<void> restore_protected(store::Engine& engine, Version version, std::span<const Target> targets,
                                 const RestoredMemory& written, const RestoreOptions& options);
  bool lean_on(const Body& body, const storage::StoredSnapshot& from, const RestoredZones& zones);
  storage::SnapshotId next_id();
  void stop();

  const std::int64_t process_;
  const std::weak_ptr<store::Engine> engine_;
  const std::uint32_t zone_bytes_;
  const Setup setup_;
  CutList cuts_{std::make_shared<Board>()};
  Archive archive_;
  CutDriver driver_;
  Archiver archiver_{cuts_, driver_, archive_};
  HostTracking tracking_;
  DeviceSide device_;

  std::atomic<bool> closing_{false};                              // calls end soon
  std::atomic<std::uint64_t> untracked_{0}, untracked_bytes_{0};  // snapshots that were stored as checkpoints
  std::mutex calls_;                                              // guards what follows
  std::vector<Protection> protections_;                           // ascending by region; never `automatic`
  std::shared_ptr<const ProtectedMemory> memory_ = std::make_shared<ProtectedMemory>();
  std::vector<std::uint8_t> dirty_;
  std::uint64_t last_id_ = 0;
  std::uint64_t failures_seen_ = 0;
  bool ended_ = false;
};

}  // namespace ebb::snapshots
