#pragma once
// Calls that wait until checkpoints are complete on a tier or below.
#include <map>
#include <string>
#include <vector>

#include "planner/events.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class Waits : Decider {
 public:
  explicit Waits(State& state) : Decider(state) {}

  void on(HistoryId client, const event::Wait& e);
  void on(HistoryId client, const event::WaitAll& e);
  bool empty() const { return waits_.empty(); }
  TierIndex deepest() const;  // that one asks for; kNoTier: there is none
  void progress(Slot slot);
  // The checkpoint's only copy is lost.
  void fail(Slot slot, const std::string& why);
  // The checkpoint will not become durable as it is being written to the tier's file: refuses the waits for it there.
  void not_durable(Slot slot, TierIndex tier);
  bool cancel(RequestId id);  // false: it does not wait
  // Nothing is in flight any more: refuses the waits for flushes that cannot go on.
  void refuse_stuck();

 private:
  void refuse_tier(RequestId id);
  TierIndex goal(const Checkpoint& c, TierIndex tier) const;
  TierIndex next_tier(Slot slot, TierIndex tier) const;
  void add(Wait wait, const std::vector<Slot>& slots);

  std::map<RequestId, Wait> waits_;
};

}  // namespace ebb::planner
