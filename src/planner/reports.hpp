#pragma once
// What a driver reports of commands.
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/outcomes.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class Reports {
 public:
  Reports(Context& context, const TierSpace& space, const CheckpointTable& table, Transfers& transfers,
          Outcomes& outcomes)
      : context_(context), space_(space), table_(table), transfers_(transfers), outcomes_(outcomes) {}

  void on(HistoryId client, const event::Carried& e);
  void on(HistoryId client, const event::Finished& e);
  void on(HistoryId client, const event::Failed& e);

 private:
  Context& context_;
  const TierSpace& space_;
  const CheckpointTable& table_;
  Transfers& transfers_;
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
