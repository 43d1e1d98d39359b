#pragma once
// The life of replicas: each takes room, is filled, used and removed, and its state, the flush queue and the counts
// follow from its facts.
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/flush_queue.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::planner {

class Replicas {
 public:
  Replicas(Context& context, CheckpointTable& table, TierSpace& space, Transfers& transfers, Durability& durability,
           FlushQueue& queue)
      : context_(context),
        table_(table),
        space_(space),
        transfers_(transfers),
        durability_(durability),
        queue_(queue) {}

  void refresh(Slot slot);  // states from facts, flush lists
  void enter(Slot slot, TierIndex tier, ReplicaState as);
  void adopt(Slot slot, Bytes place);  // memory of the program, reserved on the fastest tier
  void remove(Slot slot, TierIndex tier, bool evicted);
  void release_use(Slot slot, TierIndex tier);
  void complete_in_file(Slot slot, TierIndex tier);
  void complete_in_files(Slot slot);  // that get it
  void mark_failed(Slot slot, TierIndex tier);
  // The checkpoint's slot is free once nothing of it is left.
  void try_release(Slot slot);
  // `call`: that it serves, if any.
  MoveIndex start_move(MoveKind kind, Slot slot, TierIndex from, TierIndex to, bool demand, Time since,
                       const Request* call = nullptr);

  // Hints.
  void hint(HistoryId client, Version version, bool front);
  void hints_changed(Slot slot);
  void withdraw_hint(Slot slot);

 private:
  FlushKind flush_kind(const Checkpoint& c, TierIndex bottom) const;

  Context& context_;
  CheckpointTable& table_;
  TierSpace& space_;
  Transfers& transfers_;
  Durability& durability_;
  FlushQueue& queue_;
};

}  // namespace ebb::planner
