#pragma once
// Ties the planner to the machinery: calls become events, commands are carried out, completions become events.
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "ebbtide/store.hpp"
#include "options/defaults.hpp"
#include "planner/planner.hpp"
#include "storage/persistent_storage.hpp"
#include "store/call_statistics.hpp"
#include "store/catalog.hpp"
#include "store/engine_tables.hpp"
#include "store/handles.hpp"
#include "store/lifetime.hpp"
#include "store/planner_port.hpp"
#include "store/streams.hpp"
#include "store/tiers.hpp"
#include "transfer/copy_engine.hpp"

namespace ebb::runtime {

/// An open store's machinery.
///
/// Thread safety: every public method may be called from any thread of the process that opened it (a forked child is
/// refused by name).
/// 1. The port's mutex guards everything that is not constant after open(). No byte is copied, no transfer handed over,
///    no file touched and no user's code called with it held. (Storage::drop() and Device::discard() are: they must
///    happen before the commands that use the room again, and neither blocks.)
/// 2. A command is carried out by exactly one thread: copies from or to the application by the calling thread
///    (the worker for restore_async), on a GPU by one of its streams to which that thread gives them, all others by the
///    engines, to which they are handed in the planner's order, one
///    thread at a time a link.
/// 3. Each command's end is told to the planner at once, by the thread that saw it, unless the store is closed.
/// 4. Once `closed_` is set the planner hears nothing any more, nothing new begins, and close() returns only when
///    nothing is under way: then no thread reads or writes an application's memory or a cache.
/// 5. Threads are joined and engines stopped before the memory they work on is freed; lent memory stays (Tiers).
class Engine : public std::enable_shared_from_this<Engine>, private EngineTables {
 public:
  static Result<std::shared_ptr<Engine>> open(Seams seams, EngineSetup setup);
  static Result<Store> open_store(Seams seams, const Options& options, const Environment& environment);
  static Store store_over(std::shared_ptr<Engine> engine);
  /// Of a store whose files do not answer: it stays, with its threads, until the process ends.
  static void abandon(std::shared_ptr<Engine> engine);
  /// Whether this is the process that opened it.
  bool here() const { return !lifetime_.forked(); }
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Result<void> close(const Interrupt& interrupted = {});

  // engine_write.cpp
  Result<Future> checkpoint(policy::HistoryId history, Version version, std::span<const Source> sources,
                            const CheckpointOptions& options);
  Result<Reservation> reserve(policy::HistoryId history, Version version, std::span<const Source> regions,
                              const CheckpointOptions& options);
  Result<void> commit(Reservation::State& hold, const HandBack& how);
  void abandon(Reservation::State& hold);

  // engine_read.cpp
  Result<void> restore(policy::HistoryId history, Version version, std::span<const Target> targets,
                       const RestoreOptions& options);
  Result<Future> restore_async(policy::HistoryId history, Version version, std::span<const Target> targets,
                               const RestoreOptions& options);
  Result<Loan> borrow(policy::HistoryId history, Version version, const RestoreOptions& options);
  Result<void> release(Loan::State& hold, bool keep, const HandBack& how);
  /// Released by nobody who could say on which stream it is still read.
  void give_up(Loan::State& hold);

  // engine_streams.cpp
  /// Nobody looks any more at memory that was handed back with `hold`.
  void let_go(Hold& hold);

  // engine_wait.cpp
  Result<void> wait(policy::HistoryId history, std::optional<Version> version, std::string_view level,
                    std::optional<Seconds> timeout, const Interrupt& interrupted);
  bool done(const Waitable& waitable, std::optional<std::string_view> level);
  Result<void> wait(const Waitable& waitable, std::optional<std::string_view> level, std::optional<Seconds> timeout);
  std::optional<Error> error(const Waitable& waitable);

  // engine_histories.cpp
  std::pair<policy::HistoryId, std::shared_ptr<const InHand>> history(const std::string& name, Order order);
  // Hint, HintFront, Unhint, UnhintAll, StartPrefetch.
  Result<void> hint(policy::HistoryId history, policy::event::Any hint);
  Result<void> drop(policy::HistoryId history, std::optional<Version> version);
  Result<CheckpointInfo> info(policy::HistoryId history, Version version);
  Result<std::vector<Version>> versions(policy::HistoryId history);
  Stats stats();

  // engine_latest.cpp
  Result<std::optional<Version>> latest(policy::HistoryId history, std::optional<Version> at_most,
                                        const Interrupt& interrupted);

  /// Tests with a clock of their own: looks at the time again.
  void poke();
  /// Tests: how often the pump thread has come round.
  std::uint64_t pump_rounds();

 private:
  // A thread that stands, to be woken at a time (by the pump thread, for the clock is a seam). In `timers_` while it
  // lasts.
  class Timer {
   public:
    Timer(Engine& engine, const Locked& locked, std::optional<Seconds> timeout, std::condition_variable& wake);
    ~Timer();
    bool fired = false;
    std::condition_variable& wake;

   private:
    friend class Engine;
    Engine& engine_;
    policy::Time at_ = policy::kNever;
  };
  // Everything that a forked child must not touch, not even to destroy it: threads that do not exist there, and what
  // they may have been waiting for.
  struct Machinery {
    std::condition_variable pump, worker, ended;
    std::unique_ptr<transfer::CopyEngine> copies;
    std::unique_ptr<storage::Storage> storage;
    storage::PersistentStorage* kept = nullptr;  // the same, if it outlives the process
    std::shared_ptr<Tiers> tiers;
    std::unique_ptr<DigestPlaces> digests;
    std::thread pump_thread, worker_thread, stop_thread;
  };
  using Blocked = CallStatistics::Blocked;
  // A request's place in the table, for as long as the call lasts.
  class Entered {
   public:
    Entered(Engine& engine, const Locked& locked, Request& request);
    ~Entered();
    /// The call returns, the request stays until it is answered; an error goes to `waitable`.
    void detach(const Locked& locked, std::shared_ptr<Request> request, std::shared_ptr<Waitable> waitable);

   private:
    Engine& engine_;
    const Locked& locked_;
    Request& request_;
    bool detached_ = false;
  };

  Engine(Seams seams, EngineSetup setup);
  Result<void> start();

  // engine_open.cpp: how it ends.
  Result<void> leave_open(const Locked& locked, const Result<void>& why);
  void end_futures(const Locked& locked);

  // engine_dispatch.cpp: events in, commands and answers out. All with the mutex held.
  friend class PlannerPort;
  void take(const Locked& locked, policy::Output& output);
  void give(const Locked& locked, const policy::Command& command);
  void take_answer(const Locked& locked, policy::Answer& answer);
  void take_freed(const Locked& locked, const policy::Freed& freed);
  void end_background(const Locked& locked, Request& request);
  Result<void> prepare_restore(const Locked& locked, Request& request, std::span<const Target> targets);
  void completed(const Locked& locked, policy::CheckpointRef checkpoint, std::uint64_t bytes);
  // engine_histories.cpp: names and numbers.
  Result<policy::TierIndex> level_of(std::string_view level) const;

  // engine_threads.cpp: who carries out what. All enter and leave with the mutex held; those that take the lock give it
  // up meanwhile.
  void serve(Locked& locked, Request& request, const Timer* timer, const Interrupt& interrupted);
  Result<void> wait_locked(Locked& locked, policy::HistoryId history, std::optional<Version> version,
                           std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted);
  // engine_streams.cpp: the application's copies, and what is handed back in stream order.
  void copy_own(Locked& locked, Request& request);
  void sent(const Locked& locked, policy::CommandId command);
  Result<void> enqueue_copies(const Request& request, const policy::Command& command, platform::StreamId stream);
  Result<void> copy_at_once(Request& request, const policy::Command& command);
  static void count_enqueued(Request& request, const policy::Command& command);
  bool all_enqueued(const Request& request) const {
    return request.stream && !request.spoiled && request.enqueued == request.bytes;
  }
  /// Whether it has a copy to make, for which everything is there: memory, and what it comes after.
  bool has_work(const Locked& locked, const Request& request) const;
  void ask_ready(Locked& locked, Request& request);
  Result<void> hand_back(Locked& locked, Hold& hold, std::optional<platform::StreamId> stream, HandedBack::End end,
                         bool held, std::shared_ptr<Check> check = {});
  void stream_done(const Locked& locked, std::uint64_t key, const Result<void>& result);
  void stream_ended(const Locked& locked, transfer::Token token, const Result<void>& result);
  // engine_check.cpp: memory that was committed to be checked.
  Result<std::shared_ptr<Check>> take_digest(const Hold& hold, const std::optional<platform::StreamId>& stream);
  static void digest_taken(Check& check);
  std::shared_ptr<const Check> check_of(const Locked& locked, const policy::Command& command);
  Error written_to() const;
  Result<void> compare(const Check& check, platform::StreamId stream);
  Result<void> compare_source(Request& request, const Check& check, bool in_order);
  Result<void> check_lent(Locked& locked, Request& request);
  Result<void> compared(const Locked& locked, policy::CommandId command) const;
  // engine_kept.cpp: what outlives the process.
  Result<void> open_storage(const transfer::Done& done);
  void adopt(const Locked& locked, const std::vector<storage::Found>& found);
  void warn_of(const std::vector<storage::Damage>& damages);
  void on_kept(storage::ObjectId object, const Result<void>& result);
  void tell_durable(const Locked& locked, policy::CheckpointRef checkpoint, bool durable);
  void keep_empty(Locked& locked, policy::CheckpointRef checkpoint);
  std::shared_ptr<const storage::Description> description_of(const Locked& locked,
                                                             const policy::CheckpointRef& checkpoint);
  std::string waited_for(const Locked& locked, policy::HistoryId history, std::optional<Version> version,
                         policy::TierIndex tier);
  Result<void> await_kept(Locked& locked, policy::HistoryId history, std::optional<Version> version,
                          std::string_view level, const Timer& timer, const Interrupt& interrupted);
  Error gone_before_kept(const Locked& locked, const Waitable& waitable) const;
  Result<void> drain(Locked& locked, policy::Time until, const Interrupt& interrupted);
  bool stop_storage(policy::Time until);
  void drop_last(const Locked& locked);
  Result<void> refuse_kept_store() const;
  // engine_latest.cpp: what an earlier process left, or another one adds.
  Result<void> know(Locked& locked, policy::HistoryId history, Version version, bool to_check);
  void refresh(Locked& locked);
  void look_for(Locked& locked, policy::HistoryId history, Version version);
  storage::ObjectId adopted(policy::HistoryId history, Version version);
  std::optional<Error> settle(policy::HistoryId history, Version version, const Error& error, storage::ObjectId before);
  template <class Call>
  auto until_settled(policy::HistoryId history, Version version, const RestoreOptions& options, Call&& call);
  Result<void> restore_once(policy::HistoryId history, Version version, std::span<const Target> targets,
                            const RestoreOptions& options);
  Result<Loan> borrow_once(policy::HistoryId history, Version version, const RestoreOptions& options);
  void discard_stale(const Locked& locked, policy::CheckpointRef checkpoint, const Error& why);
  bool is_durability(std::string_view level) const { return level == "process" || level == "storage"; }
  // engine_verify.cpp
  std::shared_ptr<const Record::Sums> sums_of(std::span<const Piece> pieces) const;
  std::shared_ptr<const Record::Sums> sums_of(const CheckpointInfo& info, const std::byte* data) const;
  Result<void> check_handed_out(Locked& locked, Request& request, std::span<const Piece> pieces, bool mend);
  bool take_from_file(Locked& locked, const Request& request, std::span<const Piece> pieces);
  // engine_memory.cpp: memory that comes while the store is in use.
  void memory_changed();
  void tell_limits(const Locked& locked);
  bool usable(const policy::Command& command) const;
  bool never(const policy::Command& command) const;
  Error no_memory_error(const policy::Command& command) const;
  Result<void> await_memory(Locked& locked, Request& request, const Interrupt& interrupted);
  void begin_moving(const Locked& locked, const policy::Command& command, bool copies);
  void end_moving(const Locked& locked, policy::CommandId command, const Result<void>& result);
  void pump(Locked& locked);
  Result<void> hand_over(const Handover& order);  // without the mutex
  void tell_end(const Locked& locked, policy::CommandId command, const Result<void>& result);
  bool reads_file(const policy::Command& command) const;
  void on_carried(transfer::Token token);
  void on_done(transfer::Token token, const Result<void>& result);
  void run_timers(const Locked& locked);
  void run_pump();
  void run_worker();
  void wake_everyone(const Locked& locked);
  bool wants_pump(const Locked& locked);
  void wake_pump(const Locked& locked);
  void notify_pump() { machinery_->pump.notify_one(); }
  policy::Time due(const Locked& locked) const;
  bool unhanded(const Locked& locked) const;

  Error readonly_error() const;

  std::shared_ptr<Engine> self_;  // of an abandoned one
  Seams seams_;
  EngineSetup setup_;
  std::mutex refresh_turn_;  // one look at the directory at a time, until it is adopted; before the port's mutex
  PlannerPort port_;
  std::unique_ptr<Machinery> machinery_;
  Lifetime lifetime_;
  Streams streams_;
  CallStatistics statistics_;
  Catalog catalog_;
  policy::RequestId next_request_ = 1;
  std::unordered_map<policy::RequestId, Request*> requests_;
  std::unordered_map<policy::RequestId, std::shared_ptr<Request>> background_;
  std::unordered_set<policy::RequestId> abandoned_;       // given up and returned from before the planner answered
  std::deque<policy::RequestId> worker_queue_;            // one entry for each command of a background request
  std::deque<policy::RequestId> checks_;                  // background requests that are to be checked and then ended
  std::vector<Lane> lanes_;                               // by link
  std::unordered_map<policy::CommandId, Moving> moving_;  // what the engines hold, and copies of the application's
  std::unordered_set<policy::CommandId> unsent_;          // ordered, and on no stream yet: nothing can come after them
  std::set<std::pair<policy::Time, Timer*>> timers_;      // not yet fired
  std::unordered_map<std::uint64_t, HandedBack> handed_back_;
  std::uint64_t next_hand_back_ = 1;
  bool pump_sleeps_ = false;             // false again as soon as it is to wake
  bool napping_ = false;                 // it will soon look for work by itself
  policy::Time armed_ = policy::kNever;  // until when it sleeps
  std::uint64_t pump_rounds_ = 0;
  bool stopped_ = false;  // the storage is
};

}  // namespace ebb::runtime
