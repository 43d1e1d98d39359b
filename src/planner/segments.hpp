#pragma once
// Memory that is lent, recalled and lost: what is there leaves, moves away or is lost.
#include <string>

#include "planner/events.hpp"
#include "planner/outcomes.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class Segments : Decider {
 public:
  Segments(State& state, Outcomes& outcomes) : Decider(state), outcomes_(outcomes) {}

  void on(HistoryId client, const event::Lend& e);
  void on(HistoryId client, const event::Limit& e);
  void on(HistoryId client, const event::Recall& e);
  void on(HistoryId client, const event::Lost& e);
  // Frees the replicas beyond the end of a segment that nothing uses and that are complete elsewhere.
  void leave_beyond();

 private:
  void make_ring(const event::Lend& e);
  void mark_lost(Slot slot, TierIndex tier, const std::string& why);

  Outcomes& outcomes_;
};

}  // namespace ebb::planner
