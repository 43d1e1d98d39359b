#pragma once
// An open store: its parts, and the calls that go through it.
#include <memory>

#include "ebbtide/store.hpp"
#include "options/defaults.hpp"
#include "store/application_copies.hpp"
#include "store/attached.hpp"
#include "store/background_worker.hpp"
#include "store/borrower.hpp"
#include "store/cache_memory.hpp"
#include "store/call_statistics.hpp"
#include "store/call_table.hpp"
#include "store/callers.hpp"
#include "store/catalog.hpp"
#include "store/dispatcher.hpp"
#include "store/hand_backs.hpp"
#include "store/handles.hpp"
#include "store/lending.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/neighbours.hpp"
#include "store/persistence.hpp"
#include "store/planner_port.hpp"
#include "store/pump_thread.hpp"
#include "store/recovery.hpp"
#include "store/snapshot_delivery.hpp"
#include "store/snapshot_reader.hpp"
#include "store/streams.hpp"
#include "store/suspender.hpp"
#include "store/timers.hpp"
#include "store/verifier.hpp"
#include "store/waits.hpp"

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
  Result<void> close(const Interrupt& interrupted = {});
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

  // engine_write.cpp
  Result<Future> checkpoint(planner::HistoryId history, Version version, std::span<const Source> sources,
                            const CheckpointOptions& options);
  Result<Reservation> reserve(planner::HistoryId history, Version version, std::span<const Source> regions,
                              const CheckpointOptions& options);
  Result<void> commit(Reservation::State& hold, const HandBack& how);
  void abandon(Reservation::State& hold);

  // engine_read.cpp
  Result<void> restore(planner::HistoryId history, Version version, std::span<const Target> targets,
                       const RestoreOptions& options, const Restored& restored = {});
  /// The checkpoint itself, also where that is the map of a snapshot. `look`: it stays, and so do its hints (the first
  /// one is put to the front).
  Result<void> restore_stored(planner::HistoryId history, Version version, std::span<const Target> targets,
                              const RestoreOptions& options, bool look);
  Result<Future> restore_async(planner::HistoryId history, Version version, std::span<const Target> targets,
                               const RestoreOptions& options);
  Result<Loan> borrow(planner::HistoryId history, Version version, const RestoreOptions& options);
  Result<void> release(Loan::State& hold, bool keep, const HandBack& how);
  /// The loan's handle has ended, and no stream was named on which it is still read.
  void release_unordered(Loan::State& hold);
  /// Memory that was handed back with `hold` is looked at no longer.
  void end_hold(Hold& hold);

  // engine_histories.cpp
  History view(std::string name, Order order = Order::none);
  std::pair<planner::HistoryId, std::shared_ptr<const InHand>> history(const std::string& name, Order order);
  /// Hint, HintFront, Unhint, UnhintAll, StartPrefetch.
  Result<void> hint(planner::HistoryId history, planner::event::Any hint);
  bool hinted(planner::HistoryId history, Version version);
  std::optional<Version> next_hinted(planner::HistoryId history);
  Result<void> drop(planner::HistoryId history, std::optional<Version> version);
  /// Waits until a kill, or where the store promises it a loss of power, undoes none of the drops so far. False: the
  /// time is over, or `interrupted`.
  bool wait_for_drops(Seconds limit, const Interrupt& interrupted);
  Result<CheckpointInfo> info(planner::HistoryId history, Version version);
  /// As info(), of the checkpoint itself where that is the map of a snapshot.
  Result<CheckpointInfo> stored_info(planner::HistoryId history, Version version);
  Result<std::vector<Version>> versions(planner::HistoryId history);
  Result<std::optional<Version>> latest(planner::HistoryId history, std::optional<Version> at_most,
                                        const Interrupt& interrupted);
  /// Names that begin with `prefix` and have versions, ascending.
  Result<std::vector<std::string>> names(std::string_view prefix);
  /// What is in several histories that belong together.
  struct Standing {
    bool safe = false;        // there is something, as durable as promised, that this process wrote or read whole
    bool ours = false;        // this process wrote some of it
    std::uint64_t order = 0;  // of its last write; 0: there is nothing
    bool operator==(const Standing&) const = default;
  };
  Standing standing(std::span<const std::string> names);
  /// Drops all that is in these histories, in their order, unless something was written there since `known`.
  void drop_unchanged(std::span<const std::string> names, const Standing& known);
  /// `act` is called with the name of a history of a file, once something in it has become durable, and with none when
  /// all is and the store closes. It may not wait, nor keep the engine: the threads are those of the storage.
  using OnFilesDurable = void (*)(Engine& engine, const std::optional<std::string>& history);
  void on_files_durable(OnFilesDurable act);
  const planner::Retention& retention() const { return setup_.machine.retention; }
  /// The first cache's, without what others lend to it.
  std::uint64_t first_cache_bytes() const { return setup_.machine.tiers.front().capacity; }
  Durability durability() const { return setup_.durability; }
  bool read_only() const { return setup_.readonly; }
  std::string name_of(planner::HistoryId history);
  /// "version 3 of history "x"", for messages.
  std::string key_text(planner::HistoryId history, Version version);
  planner::Time now() const { return port_.now(); }
  const std::shared_ptr<device::Device>& device() const { return seams_.device; }
  const Streams& streams() const { return streams_; }
  ZoneScratches& zone_scratches() { return zone_scratches_; }
  Stats stats();

  Waits& waits() { return waits_; }
  Suspender& suspender() { return suspender_; }
  Lending& lending() { return lending_; }
  Result<void> lend(std::uint64_t bytes, Seconds within, const Interrupt& interrupted);

  /// Tests with a clock of their own: looks at the time again.
  void poke();
  /// Tests: how often the pump thread has come round.
  std::uint64_t pump_rounds();

 private:
  using Blocked = CallStatistics::Blocked;

  Engine(options::Seams seams, options::EngineSetup setup);
  Result<void> start();
  Result<void> leave_stuck(const Locked& locked, const Result<void>& why);

  void count_written(const Locked& locked, planner::CheckpointRef checkpoint, std::uint64_t bytes);
  Result<void> prepare_restore(const Locked& locked, Request& request, const Record* record,
                               std::span<const Target> targets);
  template <class Call>
  auto until_settled(planner::HistoryId history, Version version, const RestoreOptions& options, Call&& call);
  enum class Reading { whole, stored, look };  // as restore(), and as restore_stored() without and with `look`
  /// False: it is a snapshot, which was not asked for `stored`. Nothing was done.
  Result<bool> restore_once(planner::HistoryId history, Version version, std::span<const Target> targets,
                            const RestoreOptions& options, Reading reading);
  Result<Loan> borrow_once(planner::HistoryId history, Version version, const RestoreOptions& options);
  /// Why nothing can be written now; none: it can.
  std::optional<Error> not_writable(const Locked& locked, planner::HistoryId history) const;
  Error readonly_error() const;
  Standing standing(const Locked& locked, std::span<const std::string> names);
  void drop(const Locked& locked, planner::HistoryId history, std::optional<Version> version);
  void warn_beneath(Locked& locked, planner::HistoryId history, Version version);

  std::shared_ptr<Engine> self_;  // of one that was left open
  const options::Seams seams_;
  options::EngineSetup setup_;  // constant after open()
  PlannerPort port_;
  Lifetime lifetime_;
  Streams streams_;
  CallStatistics statistics_;
  Catalog catalog_;
  CacheMemory memory_;
  Persistence files_;
  Recovery recovery_;
  Verifier verifier_;
  LinkQueues queues_;
  ApplicationCopies copies_;
  HandBacks hand_backs_;
  CallTable calls_;
  Callers callers_;
  Timers timers_;
  PumpThread pump_;
  BackgroundWorker worker_;
  Dispatcher dispatcher_;
  Waits waits_;
  Lending lending_;
  ZoneScratches zone_scratches_;
  std::unique_ptr<Borrower> borrower_;  // of a store in a node's pool
  Neighbours neighbours_;
  std::shared_ptr<Attached> attached_;         // by the port's mutex
  OnFilesDurable on_files_durable_ = nullptr;  // by the port's mutex
  Suspender suspender_;
};

}  // namespace ebb::store
