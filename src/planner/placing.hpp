#pragma once
// Which tier a new checkpoint goes to, when a call that waits for room gets it, and when it is refused.
#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/flush_planner.hpp"
#include "planner/outcomes.hpp"
#include "planner/replicas.hpp"
#include "planner/room.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class Placing {
 public:
  Placing(Context& context, const TierSpace& space, CheckpointTable& table, Transfers& transfers,
          Durability& durability, Replicas& replicas, Calls& calls, RoomFinder& rooms, FlushPlanner& flush_planner,
          Outcomes& outcomes)
      : context_(context),
        space_(space),
        table_(table),
        transfers_(transfers),
        durability_(durability),
        replicas_(replicas),
        calls_(calls),
        rooms_(rooms),
        flush_planner_(flush_planner),
        outcomes_(outcomes) {}

  bool place(Request& request, bool fastest_taken, bool at_any_cost);
  void serve_waiting();
  bool refuse_waiting();
  // Something that is under way by itself may still make room.
  bool under_way() const { return transfers_.under_way() || calls_.any_ending() || durability_.under_way(); }

 private:
  bool place_borrow(Request& request);
  bool place_write(Request& request, bool fastest_taken, bool at_any_cost);
  bool outgrown(const Request& request) const;

  Context& context_;
  const TierSpace& space_;
  CheckpointTable& table_;
  Transfers& transfers_;
  Durability& durability_;
  Replicas& replicas_;
  Calls& calls_;
  RoomFinder& rooms_;
  FlushPlanner& flush_planner_;
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
