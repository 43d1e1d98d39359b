#pragma once
// What a driver reports of commands.
#include "planner/outcomes.hpp"
#include "planner/state.hpp"

namespace ebb::policy {

class Reports : Part {
 public:
  Reports(State& state, Outcomes& outcomes) : Part(state), outcomes_(outcomes) {}

  void on(HistoryId client, const event::Carried& e);
  void on(HistoryId client, const event::Finished& e);
  void on(HistoryId client, const event::Failed& e);

 private:
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
