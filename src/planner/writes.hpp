#pragma once
// Calls that write: checkpoints and reservations.
#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/outcomes.hpp"
#include "planner/placing.hpp"
#include "planner/replicas.hpp"
#include "planner/tier_space.hpp"
#include "planner/waits.hpp"

namespace ebb::policy {

class Writes {
 public:
  Writes(Context& context, const TierSpace& space, CheckpointTable& table, Replicas& replicas, Calls& calls,
         Waits& waits, Outcomes& outcomes, Placing& placing)
      : context_(context),
        space_(space),
        table_(table),
        replicas_(replicas),
        calls_(calls),
        waits_(waits),
        outcomes_(outcomes),
        placing_(placing) {}

  void on(HistoryId client, const event::Checkpoint& e);
  void on(HistoryId client, const event::Reserve& e);
  void on(HistoryId client, const event::Commit& e);
  void on(HistoryId client, const event::Abandon& e);

 private:
  template <class Write>
  bool begin_write(HistoryId client, const Write& e, Slot& slot, Request& request);

  Context& context_;
  const TierSpace& space_;
  CheckpointTable& table_;
  Replicas& replicas_;
  Calls& calls_;
  Waits& waits_;
  Outcomes& outcomes_;
  Placing& placing_;
};

}  // namespace ebb::policy
