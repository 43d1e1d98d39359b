#pragma once
// Which tier a new checkpoint goes to, when a call that waits for room gets it, and when it is refused.
#include "planner/flush_planner.hpp"
#include "planner/outcomes.hpp"
#include "planner/room.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class Placing : Decider {
 public:
  Placing(State& state, RoomFinder& rooms, FlushPlanner& flush_planner, Outcomes& outcomes)
      : Decider(state), rooms_(rooms), flush_planner_(flush_planner), outcomes_(outcomes) {}

  bool place(Request& request, bool fastest_taken, bool at_any_cost);
  void serve_waiting();
  bool refuse_waiting();
  // Something in flight may still make room.
  bool room_may_come() const { return transfers_.in_flight() || calls_.any_ending() || durability_.settling(); }

 private:
  bool place_borrow(Request& request);
  bool place_write(Request& request, bool fastest_taken, bool at_any_cost);
  Time behind_flushes(TierIndex to) const;
  bool outgrown(const Request& request) const;
  bool try_file_again(Request& request);

  RoomFinder& rooms_;
  FlushPlanner& flush_planner_;
  Outcomes& outcomes_;
};

}  // namespace ebb::planner
