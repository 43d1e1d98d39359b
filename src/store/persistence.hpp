#pragma once
// The store's files: what becomes durable there, and who waits for that.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options/defaults.hpp"
#include "store/empty_checkpoints.hpp"
#include "store/file_tiers.hpp"
#include "store/held_back_maps.hpp"
#include "store/joined_pool.hpp"
#include "store/objects.hpp"
#include "store/parts.hpp"
#include "store/shared_trouble.hpp"

namespace ebb::store {

/// Owns the file tiers: scratch, or those that outlive the process.
///
/// Thread safety: tiers() and persistent() may be called from any thread between open() and
/// stop(); on_durable() is called on the storages' threads; everything else takes the port's Locked, or is called by
/// one thread.
/// 1. The planner, the Future and those who wait learn of durability in one step, with the mutex held.
class Persistence {
 public:
  /// What a storage reports of transfers, on its threads.
  struct Reports {
    std::function<void(transfer::Token, const Result<void>&)> done;
    std::function<void(transfer::Token)> carried;
  };
  Persistence(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, CallTable& calls, const options::Seams& seams,
              options::EngineSetup& setup)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        calls_(calls),
        seams_(seams),
        setup_(setup),
        tiers_(port, lifetime, seams, setup),
        objects_(catalog),
        pool_(port, catalog, objects_, setup),
        trouble_(port, lifetime, setup),
        held_back_(catalog, objects_),
        empty_(port, lifetime, catalog, objects_, tiers_, setup) {}
  /// Called before any thread is there. Opens the storages of the file tiers, and completes the setup by what they say
  /// of themselves. Error invalid_argument: also where their directories do not belong together.
  Result<void> open(const Reports& reports);
  /// Called before open(), and before the tiers have memory, which for the host cache is the pool's: joins a node's
  /// pool, and opens the storage there of a store that outlives the process. Does nothing for a store in no pool.
  Result<void> join_pool(const Reports& reports);
  /// The planner gave up a transfer to the files.
  void note_failure(const Locked& locked, const planner::Failure& failure);
  /// What is not in the lowest tier's directory: "version 3 and 5 more". Empty: everything is there.
  std::string missing_below(const Locked& locked);
  /// Drops the objects of checkpoints that were dropped while they were being written, which ended too late for the
  /// planner to say that their room is free. Called when nothing is in flight.
  void drop_unreferenced(const Locked& locked);
  /// Stops the storages. False: their files did not answer in time; they go on stopping for as long as that takes.
  /// `below`: the limit for those below the fastest.
  bool stop(planner::Time until, planner::Time below);

  FileTiers& tiers() { return tiers_; }
  /// Whether what is in the files outlives the process.
  bool persistent() const { return tiers_.persistent(); }
  /// What checkpoints have in the files.
  Objects& objects() { return objects_; }
  /// Checkpoints of no bytes.
  EmptyCheckpoints& empty() { return empty_; }
  /// The pool of the node, if the store has joined one.
  JoinedPool& pool() { return pool_; }
  /// What is said of a shared directory that fails or does not answer.
  SharedTrouble& trouble() { return trouble_; }

  // --- objects
  /// A replica on a file tier is gone.
  void release(const Locked& locked, const planner::Freed& freed);
  /// Tells the planner what has yet to be given back to the disk, if that is not what it knows.
  void report_unreleased(const Locked& locked);

  // --- durability
  /// Room is waited for: what is complete on these tiers (bits) becomes durable now.
  void commit(const Locked& /*locked*/, std::uint32_t tiers = ~0u) {
    for (const auto& tier : tiers_)
      if ((tiers >> tier->index() & 1) != 0) tier->commit();
  }
  /// `act` is called, without the mutex, with the name of a file's history in which something has become durable.
  void on_part_durable(const Locked& /*locked*/, std::function<void(const std::string&)> act) {
    on_part_durable_ = std::move(act);
  }
  /// The planner decides what that means for others.
  void submit_durable(const Locked& locked, planner::CheckpointRef checkpoint, std::size_t file, bool durable);
  /// Waits until checkpoints that are on the file tier `tier`, or for level "node" in the host cache, are durable there
  /// or below as promised, or in the node's pool at least.
  Result<void> await(Locked& locked, planner::HistoryId history, std::optional<Version> version, std::string_view level,
                     planner::TierIndex tier, const Timer& timer, const Interrupt& interrupted);

 private:
  void on_released();
  void on_listed(storage::ObjectId object, bool listed);
  void on_delayed(storage::ObjectId object, const Error& error);
  void set_not_durable(const Locked& locked, Record& record, std::size_t file, const Error& error);
  void on_durable(std::size_t file, storage::ObjectId object, const Result<void>& result);
  void settle_held_back(std::size_t file, const Result<void>& result);
  void set_durable(std::size_t file, storage::ObjectId object, const Result<void>& result);
  std::string waited_for(const Locked& locked, planner::HistoryId history, std::optional<Version> version,
                         std::size_t file);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  CallTable& calls_;
  const options::Seams& seams_;
  options::EngineSetup& setup_;  // constant after open()
  FileTiers tiers_;
  Objects objects_;
  JoinedPool pool_;
  SharedTrouble trouble_;
  HeldBackMaps held_back_;
  EmptyCheckpoints empty_;
  std::function<void(const std::string&)> on_part_durable_;  // by the port's mutex, and set once
};

}  // namespace ebb::store
