#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "planner/snapshot_plan.hpp"
#include "snapshots/cut_list.hpp"
#include "snapshots/own_memory.hpp"
#include "snapshots/watched_memory.hpp"

namespace ebb::snapshots {

/// Drives the plan of snapshots in real time: arms and disarms memory, answers faults, copies zones to the buffer and
/// drains it.
///
/// Thread safety: every method may be called from any thread, but begin() and cut() by one at a time; the board's mutex
/// guards all. A method that says "locked" is called with it held.
/// 1. Board's rule holds for everything here, so a fault is answered whatever lock its writer holds.
/// 2. A fault that comes while memory is armed for a cut is answered after the cut: both have the mutex.
/// 3. A cut is `copied` only when the watches have told what happened to memory before it was all in the buffer.
/// 4. If a cut fails, all later ones that have not ended fail too: they may lean on it.
class CutDriver {
 public:
  struct Setup {
    std::uint32_t zone_bytes = 64 << 10;
    std::uint32_t slot_zones = 64;
    planner::Time longest_wait = 5'000'000'000;
    bool hints = true, duplicate = true;  // as SnapshotSpec
    /// Stores a piece, and notes it in the cut. Called without the mutex, one at a time.
    std::function<Result<void>(Cut& cut, std::span<std::byte> bytes, std::span<const std::uint32_t> zones)> store = {};
  };
  static constexpr std::uint32_t kSlots = 2;

  CutDriver(CutList& cuts, Setup setup);
  ~CutDriver();  // stop() was called
  CutDriver(const CutDriver&) = delete;

  static Error no_memory() { return {Errc::out_of_memory, "there was no memory to store a snapshot"}; }

  Result<void> start();
  /// Fails what is in flight with this error, lets all writers go on and ends the threads. Watches are let go.
  void stop(const Error& why);

  /// Cuts are of this memory from now on, and all of it is dirty; what was lost before still is. No cut is in flight.
  /// `faults`, `notes`: the watches of faults and of the kernel's notes, or null. All that was armed is disarmed.
  void begin(std::shared_ptr<const ProtectedMemory> memory, std::shared_ptr<WatchThread> faults,
             std::shared_ptr<WatchThread> notes);

  /// Takes a cut of everything, or of what is dirty and `touched`. `armed`: for each body, whether its writes are seen
  /// by faults from now on. False: it is not taken, since the count of failures is no longer `unless`. Errors: lost,
  /// those of WriteWatch::arm; then nothing is armed.
  Result<bool> cut(const std::shared_ptr<Cut>& cut, bool full, std::span<const ProtectedMemory::Zones> touched,
                   std::span<const std::uint8_t> armed, std::optional<std::uint64_t> unless);
  /// These zones were written, which no fault tells.
  void touch(ProtectedMemory::Zones zones);
  std::shared_ptr<const ProtectedMemory> protected_memory();
  /// These zones were written by a restore, and are clean from now on, and armed if `arm` says so. No cut is in flight.
  void restored(ProtectedMemory::Zones zones, bool arm);
  /// Writes to the body are no longer seen by faults. No cut is owed any of it.
  void disarm(const Body& body);

  /// Sees the first writes to a few zones of a body that is not armed and that no cut is owed.
  void sample(const Body& body);
  /// The share of those that were written. The body is then no longer armed.
  double sampled(const Body& body);

  /// What is known of each zone: 1, a cut would be owed it; 2, a cut that has not ended stores it; 0, neither.
  void dirty(std::span<std::uint8_t> out);
  /// Names the first region whose memory is lost; none: all is there.
  std::optional<Error> lost();
  /// Forgets what was written: cuts in flight fail, and the next one is owed everything.
  void lose_track();
  /// The body cannot be read: its memory is lost.
  void lose(const Body& body);

  /// Why the cut failed; none: it has not.
  std::optional<Error> failure_of(const Cut& cut);
  /// The cut has ended: with its map's future, or with an error, and then later ones fail too.
  void archived(const std::shared_ptr<Cut>& cut, Result<Future> map);
  /// Returns when the watches have told what happened before.
  void ask_watches();

  SnapshotStats stats();
  /// Called by the fault threads.
  void told(const Result<os::WatchEvent>& event);
  void confirmed();

 private:
  using Plan = planner::SnapshotPlan;
  using Command = planner::SnapshotCommand;
  using Event = planner::SnapshotEvent;

  planner::Time now() const;
  void on(Event event);  // locked
  void carry_out_all();  // locked
  void carry_out(const Command& command);
  bool copy(const Command& command);
  void end_copy(const Command& command, bool copied);  // locked
  void fail(planner::SnapshotTrouble trouble);         // locked
  void answer(os::PageRange range);                    // locked
  void confirm();                                      // locked
  void touch_locked(ProtectedMemory::Zones zones);
  bool idle() const;                                                    // locked
  std::optional<LostBody> copy_edges(Cut& cut) const;                   // locked
  const ProtectedMemory& memory() const { return *watched_.memory(); }  // locked, or while not idle()
  void run_copies();
  void run_drains();
  std::span<std::byte> place_of(std::uint32_t slot, std::uint32_t place) const;

  CutList& cuts_;
  Board& board_;
  const Setup setup_;
  OwnMemory buffer_;
  std::thread copier_, drainer_;
  const std::shared_ptr<const Error> no_memory_ = std::make_shared<const Error>(no_memory());
  std::condition_variable copies_wake_, drains_wake_, idle_wake_;

  // By the mutex. What grows has its room before.
  WatchedMemory watched_;
  std::unique_ptr<Plan> plan_;
  std::vector<Command> commands_, copies_, drains_;  // in order
  std::size_t next_command_ = 0;
  std::vector<std::uint32_t> zones_in_;                        // of each place of each slot
  planner::Time wakeup_ = planner::kNever, sleeps_until_ = 0;  // of the plan; the copier
  bool copying_ = false, draining_ = false, stopping_ = false;
  bool no_mappings_ = false;  // since the last cut, memory could not be disarmed for the want of them
  std::uint64_t snapshots_ = 0, failures_ = 0;
  planner::SnapshotCounters before_;  // of earlier plans
};

}  // namespace ebb::snapshots
