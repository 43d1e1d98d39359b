#pragma once
// The store's files: what becomes durable there, and who waits for that.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "ebbtide/stats.hpp"
#include "node/node_storage.hpp"
#include "options/defaults.hpp"
#include "store/catalog.hpp"
#include "store/parts.hpp"

namespace ebb::store {

/// Owns the storage of the file tier: scratch, or one that outlives the process.
///
/// Thread safety: storage(), persistent() and check_names() may be called from any thread between open() and stop();
/// on_durable() is called on the storage's threads; everything else takes the port's Locked, or is called by one
/// thread.
/// 1. An object is known to the storage from begin(), or its first put, until the planner frees it.
/// 2. The planner, the Future and those who wait learn of durability in one step, with the mutex held.
class Persistence {
 public:
  /// What a storage reports of transfers, on its threads.
  struct Reports {
    std::function<void(transfer::Token, const Result<void>&)> done;
    std::function<void(transfer::Token)> carried;
  };
  Persistence(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, CallTable& calls, const options::Seams& seams,
              options::EngineSetup& setup)
      : port_(port), lifetime_(lifetime), catalog_(catalog), calls_(calls), seams_(seams), setup_(setup) {}
  /// Called before any thread is there. Opens the storage of the file tier, if there is one, and completes the setup by
  /// what it says of itself.
  Result<void> open(const Reports& reports);
  /// Called before open(), and before the tiers have memory, which for the host cache is the pool's: joins a node's
  /// pool, and opens the storage there of a store that outlives the process. Does nothing for a store in no pool.
  Result<void> join_pool(const Reports& reports);
  /// Logs the damage that was found when the files were opened.
  void warn_of_damage() const;
  /// Drops the objects of checkpoints that were dropped while they were being written, which ended too late for the
  /// planner to say that their room is free. Called when nothing is in flight.
  void drop_unreferenced(const Locked& locked);
  /// The planner hears nothing any more: nothing waits for room in the file.
  void leave(const Locked& locked);
  /// Stops the storage. False: its files did not answer in time; it goes on stopping for as long as that takes.
  bool stop(planner::Time until);

  storage::Storage& storage() { return *storage_; }
  /// Null: nothing outlives the process.
  storage::PersistentStorage* persistent() const { return persistent_; }
  /// Null: the store is not written by the agent of a node's pool.
  node::NodeStorage* pooled() const { return pooled_; }
  /// Null: the host cache is in no node's pool.
  node::NodeMemory* pool_memory() const { return pool_memory_; }
  /// Ends a call after its `timeout`, if it is not 0, while the agent of the pool is stopped: what it waits for is that
  /// agent's to do.
  Interrupt limited(Seconds timeout, Interrupt interrupted) const;
  /// A call that ran out of time says which agent is stopped.
  Error with_agent(Error error) const;
  /// The node's part of Stats.
  std::optional<NodeStats> node_stats(const Locked& locked) const;
  /// The program has begun a checkpoint, or got it back.
  void note_checkpoint(const Locked& locked, planner::Time begun);

  // --- objects
  /// A version, or all, was dropped: what of it is under way to the file may stop.
  void withdraw_dropped(const Locked& locked, planner::HistoryId history, std::optional<Version> version);
  /// A replica on the file tier is gone.
  void release(const Locked& locked, const planner::Freed& freed);
  /// Tells the planner what has yet to be given back to the disk, if that is not what it knows.
  void report_unreleased(const Locked& locked);
  /// The name and regions of a checkpoint, for a persistent store. Empty: the store is not persistent.
  std::shared_ptr<const storage::Description> description_of(const Locked& locked, const Record& record) const;
  /// Stores a checkpoint of no bytes, for which the planner gives no command.
  void store_empty(Locked& locked, planner::CheckpointRef checkpoint);

  // --- durability
  /// Room is waited for: what is complete becomes durable now.
  void commit(const Locked& /*locked*/) {
    if (persistent_ != nullptr) persistent_->commit();
  }
  /// `act` is called, without the mutex, with the name of a file's history in which something has become durable.
  void on_part_durable(const Locked& /*locked*/, std::function<void(const std::string&)> act) {
    on_part_durable_ = std::move(act);
  }
  /// The planner decides what that means for others.
  void submit_durable(const Locked& locked, planner::CheckpointRef checkpoint, bool durable);
  /// Waits until checkpoints that are on the file tier, or for level "node" in the host cache, are durable as the store
  /// promises, or in the node's pool at least.
  Result<void> await(Locked& locked, planner::HistoryId history, std::optional<Version> version, std::string_view level,
                     const Timer& timer, const Interrupt& interrupted);
  /// The error if something that was reported durable has no name in the directory any more.
  Result<void> check_names(Locked& locked);

 private:
  void use(node::NodeMemory& memory);
  std::optional<node::NodeCounters> node_counters() const;
  Result<void> open_scratch(const Reports& reports);
  Result<void> open_persistent(const Reports& reports);
  storage::PersistentOptions persistent_options() const;
  void on_listed(storage::ObjectId object, bool listed);
  void on_delayed(storage::ObjectId object, const Error& error);
  void set_not_durable(const Locked& locked, Record& record, const Error& error);
  Result<void> refuse_persistent_store() const;
  void on_durable(storage::ObjectId object, const Result<void>& result);
  void store_empty_again(Locked& locked, planner::HistoryId history, std::optional<Version> version);
  std::string waited_for(const Locked& locked, planner::HistoryId history, std::optional<Version> version);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  CallTable& calls_;
  const options::Seams& seams_;
  options::EngineSetup& setup_;  // constant after open()
  std::unique_ptr<storage::Storage> storage_;
  node::NodeStorage* pooled_ = nullptr;               // likewise, in a node's pool
  std::unique_ptr<node::NodeMemory> memory_alone_;    // of a pool, for a store that does not outlive the process
  node::NodeMemory* pool_memory_ = nullptr;           // that of either
  std::optional<node::NodeCounters> last_counters_;   // once it was stopped
  storage::PersistentStorage* persistent_ = nullptr;  // the same, if it outlives the process
  std::thread stopping_;                              // stops the storage, with a time limit
  // Times of the checkpoints since everything was durable: the first began, the last returned, the last was durable.
  struct Burst {
    planner::Time begun = 0, returned = 0, durable = 0;
    bool open = false;
  } burst_;                                                  // by the port's mutex
  bool stopped_ = false;                                     // by the port's mutex
  std::function<void(const std::string&)> on_part_durable_;  // by the port's mutex, and set once
};

}  // namespace ebb::store
