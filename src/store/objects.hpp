#pragma once
// The objects that checkpoints have in the files, and which of them are on their way to becoming durable.
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "store/catalog.hpp"

namespace ebb::store {

/// Thread safety: every method takes the port's Locked.
/// 1. A record has an object on a file tier from the first command that writes it there until the planner frees that.
///    Objects are named anew each time, for an id is never used again. Durability is pending, then durable or failed; a
///    failed one becomes durable with a later attempt.
class Objects {
 public:
  explicit Objects(Catalog& catalog) : catalog_(catalog) {}

  /// Gives the record an object in the files of a tier if it has none. True: it has a new one.
  bool name(const Locked& locked, Record& record, std::size_t file);
  /// Takes the checkpoint's object in the files of a tier from its record. `id` 0: it had none.
  FileObject take(const Locked& locked, planner::CheckpointRef checkpoint, std::size_t file);
  /// The record's object is on its way to becoming durable; take_pending() finds it.
  void set_pending(const Locked& locked, Record& record, std::size_t file);
  bool any_pending(const Locked& /*locked*/) const { return !pending_.empty(); }
  /// Nothing: it was dropped.
  std::optional<planner::CheckpointRef> find_pending(const Locked& locked, storage::ObjectId object) const;
  std::optional<planner::CheckpointRef> take_pending(const Locked& locked, storage::ObjectId object);
  /// The checkpoints of a history that are not durable yet in the files of a tier, in no order.
  std::vector<planner::CheckpointRef> pending(const Locked& locked, planner::HistoryId history,
                                              std::optional<Version> only, std::size_t file);
  /// The object is in the node's pool, or is there no more.
  void set_listed(const Locked& locked, storage::ObjectId object, bool listed);
  /// What could not be made durable, and is in the node's pool still, is pending anew: it is tried again.
  void set_tried_again(const Locked& locked, planner::HistoryId history, std::optional<Version> only);
  /// Why something of a history is not durable there, nor on a slower file tier, also when it failed before.
  /// `or_listed`: nor in the node's pool. `among`: only of what it is true for.
  std::optional<Error> not_durable(const Locked& locked, planner::HistoryId history, std::optional<Version> only,
                                   std::size_t file, bool or_listed = false,
                                   const std::function<bool(const Record&)>& among = {});

 private:
  struct Pending {
    planner::CheckpointRef checkpoint;
    std::size_t file = 0;
  };

  Catalog& catalog_;
  // By the port's mutex.
  std::unordered_map<storage::ObjectId, Pending> pending_;  // not durable yet, an index
  storage::ObjectId next_ = storage::kFirstObject;
};

}  // namespace ebb::store
