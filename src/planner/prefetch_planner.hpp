#pragma once
// What comes up, and when. The plan is a walk over the restore order: the nearest checkpoints belong on the fastest
// tier as far as it reaches, the next ones on the next memory tier. Nothing nearer is ever displaced by something
// farther.
#include "planner/flush_planner.hpp"
#include "planner/room.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class PrefetchPlanner : Decider {
 public:
  PrefetchPlanner(State& state, RoomFinder& rooms, FlushPlanner& flush_planner)
      : Decider(state), rooms_(rooms), flush_planner_(flush_planner) {}

  void schedule();
  // The only copy in memory that its lender will take, and that no tier below has room for, goes up.
  void rescue_upwards();

 private:
  enum class Step : std::uint8_t { served, started, blocked };
  bool prefetching(const History& history);
  void prefetch(History& history);
  Step bring(Slot slot, TierIndex target, Bytes ahead);
  bool goes_down(Slot slot, TierIndex from);
  Bytes costly_window(const Checkpoint& c) const;

  RoomFinder& rooms_;
  FlushPlanner& flush_planner_;
};

}  // namespace ebb::planner
