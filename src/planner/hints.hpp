#pragma once
// The application's plans: what it will restore, and what it is done with.
#include <vector>

#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/outcomes.hpp"
#include "planner/replicas.hpp"

namespace ebb::policy {

class Hints {
 public:
  Hints(Context& context, CheckpointTable& table, Replicas& replicas, Outcomes& outcomes)
      : context_(context), table_(table), replicas_(replicas), outcomes_(outcomes) {}

  void on(HistoryId client, const event::Hint& e);
  void on(HistoryId client, const event::HintFront& e);
  void on(HistoryId client, const event::Unhint& e);
  void on(HistoryId client, const event::UnhintAll& e);
  void on(HistoryId client, const event::StartPrefetch& e);
  void on(HistoryId client, const event::Order& e);
  void on(HistoryId client, const event::Drop& e);
  void on(HistoryId client, const event::DropAll& e);
  void on(HistoryId client, const event::Forget& e);

 private:
  void unhint(const std::vector<Slot>& named);

  Context& context_;
  CheckpointTable& table_;
  Replicas& replicas_;
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
