#pragma once
// Calls that wait until checkpoints are complete on a tier or below.
#include <map>
#include <string>
#include <vector>

#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/replicas.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class Waits {
 public:
  Waits(Context& context, CheckpointTable& table, const TierSpace& space, Transfers& transfers, Replicas& replicas,
        const Calls& calls)
      : context_(context), table_(table), space_(space), transfers_(transfers), replicas_(replicas), calls_(calls) {}

  void on(HistoryId client, const event::Wait& e);
  void on(HistoryId client, const event::WaitAll& e);
  bool empty() const { return waits_.empty(); }
  void progress(Slot slot);
  // The checkpoint's only copy is lost.
  void fail(Slot slot, const std::string& why);
  bool cancel(RequestId id);  // false: it does not wait
  // Nothing is in flight any more.
  void refuse_stuck();

 private:
  void refuse_tier(RequestId id);
  void add(Wait wait, const std::vector<Slot>& slots);

  Context& context_;
  CheckpointTable& table_;
  const TierSpace& space_;
  Transfers& transfers_;
  Replicas& replicas_;
  const Calls& calls_;
  std::map<RequestId, Wait> waits_;
};

}  // namespace ebb::policy
