#pragma once
// What each tier's file holds from earlier processes, what has become durable there, and what retention drops for it
// (retention.hpp has the rule).
#include "planner/events.hpp"
#include "planner/outcomes.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class RetentionPlanner : Decider {
 public:
  RetentionPlanner(State& state, Waits& waits, Outcomes& outcomes)
      : Decider(state), waits_(waits), outcomes_(outcomes) {}

  void on(HistoryId client, const event::Recovered& e);
  void on(HistoryId client, const event::Durable& e);
  void on(HistoryId client, const event::NotDurable& e);
  void on(HistoryId client, const event::Agreed& e);
  void on(HistoryId client, const event::Goes& e);
  // Moves to a lower file that does not answer are held back until it does.
  void look_for_silence();
  void on(HistoryId client, const event::Unreleased& e);
  void make_room(TierIndex tier, const Durability::Short& lacks);

 private:
  void require_file(TierIndex tier) const;
  Checkpoint* reported(HistoryId client, Version version, TierIndex tier, bool complete_there);
  Slot recover(HistoryId client, const event::Recovered& e);
  bool retire(History& history, TierIndex tier, Durability::When when);
  void retire(History& history);
  bool let_go(const Durability::Superseded& superseded, TierIndex tier);
  void leave(Slot slot, TierIndex tier);
  bool evict(TierIndex tier, Bytes needed);
  bool waive_superseded(TierIndex tier);
  void start_checks(const History& history, TierIndex tier);

  Waits& waits_;
  Outcomes& outcomes_;
};

}  // namespace ebb::planner
