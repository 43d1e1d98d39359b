#pragma once
// What goes down, and when. Flushes leave in eviction order (needed latest first), ahead of need while the program
// writes, on demand otherwise; a store that keeps its checkpoints flushes all of them.
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/flush_queue.hpp"
#include "planner/replicas.hpp"
#include "planner/room.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class FlushPlanner {
 public:
  FlushPlanner(Context& context, const TierSpace& space, CheckpointTable& table, Transfers& transfers,
               Durability& durability, const FlushQueue& queue, Replicas& replicas, RoomFinder& rooms)
      : context_(context),
        space_(space),
        table_(table),
        transfers_(transfers),
        durability_(durability),
        queue_(queue),
        replicas_(replicas),
        rooms_(rooms) {}

  void schedule();
  // Starts, or hastens, whatever makes this window evictable.
  void urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth = 0);

 private:
  bool start(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  void hasten(Slot slot, TierIndex from, const Rights& rights, Time since, int depth);
  bool speculate() const;
  Bytes ready_ahead(TierIndex tier) const;
  Bytes enough_ahead(const Checkpoint& c, TierIndex tier) const;
  bool all_later(TierIndex tier, const Room& room, std::int64_t than) const;

  Context& context_;
  const TierSpace& space_;
  CheckpointTable& table_;
  Transfers& transfers_;
  Durability& durability_;
  const FlushQueue& queue_;
  Replicas& replicas_;
  RoomFinder& rooms_;
};

}  // namespace ebb::policy
