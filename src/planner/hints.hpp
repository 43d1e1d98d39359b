#pragma once
// The application's plans: what it will restore, and what it is done with.
#include <vector>

#include "planner/events.hpp"
#include "planner/outcomes.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class Hints : Decider {
 public:
  Hints(State& state, Outcomes& outcomes) : Decider(state), outcomes_(outcomes) {}

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

  Outcomes& outcomes_;
};

}  // namespace ebb::planner
