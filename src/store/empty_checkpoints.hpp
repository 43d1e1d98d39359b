#pragma once
// Checkpoints of no bytes, for which the planner gives no command: what names them in the files.
#include <optional>

#include "options/defaults.hpp"
#include "store/catalog.hpp"
#include "store/file_tiers.hpp"
#include "store/objects.hpp"
#include "store/parts.hpp"

namespace ebb::store {

/// Thread safety: every method takes the port's Locked, and gives the mutex up while a storage begins an object.
class EmptyCheckpoints {
 public:
  EmptyCheckpoints(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Objects& objects, FileTiers& tiers,
                   const options::EngineSetup& setup)
      : port_(port), lifetime_(lifetime), catalog_(catalog), objects_(objects), tiers_(tiers), setup_(setup) {}
  void store(Locked& locked, planner::CheckpointRef checkpoint);
  /// Stores what the storage of a tier refused to begin.
  void store_again(Locked& locked, planner::HistoryId history, std::optional<Version> version, FileTier& tier);
  /// Sends on what an earlier process left of these in a faster file tier alone.
  void send(Locked& locked);

 private:
  void store(Locked& locked, planner::CheckpointRef checkpoint, FileTier& tier);
  void begin(Locked& locked, planner::CheckpointRef checkpoint, FileTier& tier, storage::ObjectId object);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Objects& objects_;
  FileTiers& tiers_;
  const options::EngineSetup& setup_;
};

}  // namespace ebb::store
