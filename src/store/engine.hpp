#pragma once
// An open store: its parts, and the calls that go through it.
#include <atomic>
#include <memory>

#include "ebbtide/store.hpp"
#include "options/defaults.hpp"
#include "store/attached.hpp"
#include "store/histories.hpp"
#include "store/leases.hpp"
#include "store/machinery.hpp"
#include "store/reads.hpp"
#include "store/snapshot_access.hpp"
#include "store/suspender.hpp"
#include "store/writes.hpp"
#include "store/zone_scratches.hpp"

namespace ebb::store {

/// What the public handles call. Calls become events, and end with the planner's answers; the parts do the rest.
///
/// Thread safety: every public method may be called from any thread of the process that opened it. A forked child is
/// refused by name, and never destroys an engine (InOwnProcess).
/// 1. The port's mutex guards what is not constant after open() (PlannerPort). No byte is copied, no transfer handed
///    over, no file touched and no user's code called with it held. (Storage::drop() and Device::discard() are: they
///    must happen before the commands that use the room again, and neither blocks.)
/// 2. A command is carried out by exactly one thread: copies from or to the application by the calling thread
///    (ApplicationCopies), all others by the engines, to which LinkQueues hands them in the planner's order.
/// 3. Once the store is closed the planner hears nothing any more, nothing new begins, and close() returns only when
///    nothing is in flight (Lifetime): then no thread reads or writes an application's memory or a cache.
/// 4. Threads are joined and engines stopped before the memory they work on is freed; lent memory stays (Tiers).
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  static Result<std::shared_ptr<Engine>> open(options::Seams seams, options::EngineSetup setup);
  static Result<Store> open_store(options::Seams seams, const Options& options,
                                  const options::Environment& environment);
  static Store store_over(std::shared_ptr<Engine> engine);
  /// Keeps a store whose files do not answer, with its threads, until the process ends.
  static void leave_open(std::shared_ptr<Engine> engine);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// First ends what is attached. Interrupted there, the store stays open.
  Result<void> close(const Interrupt& interrupted = {}, const std::optional<Durability>& level = {});
  /// Keeps it until it is closed, unless there is one already: returns the one that it keeps. Error closed.
  Result<std::shared_ptr<Attached>> attach(std::shared_ptr<Attached> attached);
  /// nullptr: nothing is.
  std::shared_ptr<Attached> attached();

  // For the suspender.
  /// The level that it is to drain to: the store's, unless one is given. Errors: unsupported, invalid_argument.
  Result<std::string> suspension_level(const std::optional<std::string>& level) const;
  /// Waits until everything written so far is as durable as `level`; of snapshots in flight too.
  Result<void> drain(std::string_view level, planner::Time until, const Interrupt& interrupted);
  void log_suspension(const Result<void>& done) const;

  Histories& histories() { return histories_; }
  Writes& writes() { return writes_; }
  Reads& reads() { return reads_; }
  Waits& waits() { return parts_.waits; }
  Suspender& suspender() { return suspender_; }
  Leases& leases() { return leases_; }

  // engine_snapshots.cpp: of a checkpoint, or of the snapshot whose map it is
  Result<void> restore(planner::HistoryId history, Version version, std::span<const Target> targets,
                       const RestoreOptions& options, const Restored& restored = {});
  Result<CheckpointInfo> info(planner::HistoryId history, Version version);
  Result<std::optional<Version>> latest(planner::HistoryId history, std::optional<Version> at_most,
                                        const Interrupt& interrupted);
  History view(std::string name, Order order = Order::none);
  /// `act` is called with the name of a history of a file, once something in it has become durable, and with none when
  /// all is and the store closes. It may not wait, nor keep the engine: the threads are those of the storage.
  using OnFilesDurable = void (*)(Engine& engine, const std::optional<std::string>& history);
  void on_files_durable(OnFilesDurable act);
  /// Of what is stored in several checkpoints, as a file is: they leave all file tiers together, the local one also
  /// when others need the room.
  planner::Retention retention() const;
  /// The first cache's, without what others lend to it.
  std::uint64_t first_cache_bytes() const { return parts_.setup.machine.tiers.front().capacity; }
  Durability durability() const { return parts_.setup.durability; }
  bool read_only() const { return parts_.setup.readonly; }
  /// Error unsupported: only some versions go on to the shared directory, and those of a file's pieces say nothing.
  Result<void> check_files_sent() const;
  planner::Time now() const { return parts_.port.now(); }
  const std::shared_ptr<device::Device>& device() const { return parts_.seams.device; }
  const Streams& streams() const { return parts_.streams; }
  ZoneScratches& zone_scratches() { return zone_scratches_; }
  Stats stats();

  Result<void> lend(std::uint64_t bytes, Seconds within, const Interrupt& interrupted);

  /// Tests with a clock of their own: looks at the time again.
  void poke();
  /// Tests: how often the pump thread has come round.
  std::uint64_t pump_rounds();

 private:
  Engine(options::Seams seams, options::EngineSetup setup);
  Result<void> start();
  Result<void> forget_gone();
  Result<void> leave_shared_stuck(Locked& locked, const Result<void>& why);
  Result<void> leave_stuck(Locked& locked, const Result<void>& why);

  std::shared_ptr<Engine> self_;  // of one that was left open
  Machinery parts_;
  Histories histories_;
  Writes writes_;
  Reads reads_;
  ZoneScratches zone_scratches_;
  Leases leases_;
  std::shared_ptr<Attached> attached_;         // by the port's mutex
  std::atomic<bool> attaches_{false};          // whether it ever did: a store without pays for no lock
  OnFilesDurable on_files_durable_ = nullptr;  // by the port's mutex
  Suspender suspender_;
};

}  // namespace ebb::store
