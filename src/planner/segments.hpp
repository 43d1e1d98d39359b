#pragma once
// Memory that is lent, recalled and lost: what is there leaves, moves away or is given up.
#include <string>

#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/outcomes.hpp"
#include "planner/replicas.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class Segments {
 public:
  Segments(Context& context, TierSpace& space, CheckpointTable& table, Transfers& transfers, Replicas& replicas,
           Outcomes& outcomes)
      : context_(context),
        space_(space),
        table_(table),
        transfers_(transfers),
        replicas_(replicas),
        outcomes_(outcomes) {}

  void on(HistoryId client, const event::Lend& e);
  void on(HistoryId client, const event::Recall& e);
  void on(HistoryId client, const event::Lost& e);
  // What is beyond the end of a segment goes once nothing uses it, if it is complete elsewhere.
  void leave_beyond();

 private:
  void mark_lost(Slot slot, TierIndex tier, const std::string& why);

  Context& context_;
  TierSpace& space_;
  CheckpointTable& table_;
  Transfers& transfers_;
  Replicas& replicas_;
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
