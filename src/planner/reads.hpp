#pragma once
// Calls that read, restores and borrows, and what becomes of any call meanwhile.
#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/outcomes.hpp"
#include "planner/placing.hpp"
#include "planner/replicas.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"
#include "planner/waits.hpp"

namespace ebb::policy {

class Reads {
 public:
  Reads(Context& context, const TierSpace& space, CheckpointTable& table, Transfers& transfers, Durability& durability,
        Replicas& replicas, Calls& calls, Waits& waits, Outcomes& outcomes, Placing& placing)
      : context_(context),
        space_(space),
        table_(table),
        transfers_(transfers),
        durability_(durability),
        replicas_(replicas),
        calls_(calls),
        waits_(waits),
        outcomes_(outcomes),
        placing_(placing) {}

  void on(HistoryId client, const event::Restore& e);
  void on(HistoryId client, const event::Borrow& e);
  void on(HistoryId client, const event::Release& e);
  void on(HistoryId client, const event::Submit& e);
  void on(HistoryId client, const event::Ready& e);
  void on(HistoryId client, const event::Cancel& e);

 private:
  Context& context_;
  const TierSpace& space_;
  CheckpointTable& table_;
  Transfers& transfers_;
  Durability& durability_;
  Replicas& replicas_;
  Calls& calls_;
  Waits& waits_;
  Outcomes& outcomes_;
  Placing& placing_;
};

}  // namespace ebb::policy
