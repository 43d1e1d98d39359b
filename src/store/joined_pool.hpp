#pragma once
// The pool of a node that a store has joined.
#include <memory>
#include <optional>

#include "ebbtide/stats.hpp"
#include "options/defaults.hpp"
#include "share/node_storage.hpp"
#include "store/objects.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// What a store has of its node's pool: memory for its host cache and, if it outlives the process, the storage that
/// the pool's agent writes. A store in no pool has neither, and every method then does nothing.
///
/// Thread safety: storage(), memory(), limited() and with_agent() may be called from any thread between join() and
/// stop(); what takes the port's Locked holds it.
class JoinedPool {
 public:
  JoinedPool(PlannerPort& port, Catalog& catalog, Objects& objects, options::EngineSetup& setup)
      : port_(port), catalog_(catalog), objects_(objects), setup_(setup) {}
  /// Called before any thread is there, for a store that ends with the process.
  void join(std::unique_ptr<share::NodeMemory> memory);
  /// The same for one that outlives it. The storage is the fastest file tier's.
  void join(share::NodeStorage& storage);
  /// The planner hears nothing any more: nothing waits for room in the file.
  void leave(const Locked& locked);
  /// Called before the storage goes. Statistics stay.
  void stop(const Locked& locked);
  /// Called once the files are closed.
  void close() { own_.reset(); }

  /// Null: the store is not written by the agent of a node's pool.
  share::NodeStorage* storage() const { return storage_; }
  /// Null: the host cache is in no node's pool.
  share::NodeMemory* memory() const { return memory_; }
  /// Ends a call after its `timeout`, if it is not 0, while the agent of the pool is stopped: what it waits for is that
  /// agent's to do.
  Interrupt limited(Seconds timeout, Interrupt interrupted) const;
  /// A call that ran out of time says which agent is stopped.
  Error with_agent(Error error) const;
  /// The node's part of Stats.
  std::optional<NodeStats> stats(const Locked& locked) const;
  /// The program has begun a checkpoint, or got it back.
  void note_checkpoint(const Locked& locked, planner::Time begun);
  /// A checkpoint has become durable, or never will.
  void note_durable(const Locked& locked);
  /// A version, or all, was dropped: what of it is under way to the file may stop.
  void withdraw_dropped(const Locked& locked, planner::HistoryId history, std::optional<Version> version);

 private:
  void use(share::NodeMemory& memory);
  std::optional<share::NodeCounters> counters() const;

  PlannerPort& port_;
  Catalog& catalog_;
  Objects& objects_;
  options::EngineSetup& setup_;
  share::NodeStorage* storage_ = nullptr;
  std::unique_ptr<share::NodeMemory> own_;            // of a store that ends with the process
  share::NodeMemory* memory_ = nullptr;               // that of either
  std::optional<share::NodeCounters> last_counters_;  // once it was stopped
  // Times of the checkpoints since everything was durable: the first began, the last returned, the last was durable.
  struct Burst {
    planner::Time begun = 0, returned = 0, durable = 0;
    bool open = false;
  } burst_;  // by the port's mutex
};

}  // namespace ebb::store
