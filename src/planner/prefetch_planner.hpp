#pragma once
// What comes up, and when. The plan is a walk over the restore order: the nearest checkpoints belong on the fastest
// tier as far as it reaches, the next ones on the next memory tier. Nothing nearer is ever displaced by something
// farther.
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/flush_planner.hpp"
#include "planner/replicas.hpp"
#include "planner/room.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class PrefetchPlanner {
 public:
  PrefetchPlanner(Context& context, const TierSpace& space, CheckpointTable& table, const Transfers& transfers,
                  Replicas& replicas, RoomFinder& rooms, FlushPlanner& flush_planner)
      : context_(context),
        space_(space),
        table_(table),
        transfers_(transfers),
        replicas_(replicas),
        rooms_(rooms),
        flush_planner_(flush_planner) {}

  void schedule();
  // The only copy in memory that its lender will take, and that no tier below can hold, goes up.
  void rescue_upwards();

 private:
  enum class Step : std::uint8_t { served, started, blocked };
  bool prefetching(const History& history);
  void prefetch(History& history);
  Step bring(Slot slot, TierIndex target, Bytes ahead);
  Bytes costly_window(const Checkpoint& c) const;

  Context& context_;
  const TierSpace& space_;
  CheckpointTable& table_;
  const Transfers& transfers_;
  Replicas& replicas_;
  RoomFinder& rooms_;
  FlushPlanner& flush_planner_;
};

}  // namespace ebb::policy
