#pragma once
// Memory that others lend to a tier.
#include <memory>
#include <optional>

#include "cache/tier_memory.hpp"
#include "ebbtide/units.hpp"
#include "share/lease_source.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// The calls of lenders of memory (CacheMemory). A forked child is refused.
///
/// Thread safety: every method may be called from any thread.
class Lending {
 public:
  Lending(PlannerPort& port, Lifetime& lifetime, CacheMemory& memory, LinkQueues& queues, CallTable& calls)
      : port_(port), lifetime_(lifetime), memory_(memory), queues_(queues), calls_(calls) {}

  using Terms = share::LeaseSource::Terms;
  /// Before its memory is lent: LinkQueues::add_owner().
  Result<void> add_owner(const std::shared_ptr<device::Device>& owner);
  Result<planner::SegmentId> lend(planner::TierIndex tier, std::unique_ptr<cache::TierMemory> memory,
                                  const Terms& terms = {});
  bool extend(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes, const Terms& terms = {});
  /// What this store may use of a lender's bandwidth from now on, in millionths.
  void limit(planner::PartyId lender, std::uint32_t link);
  bool recall(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
              std::optional<Seconds> within = {});
  bool await_returned(planner::TierIndex tier, planner::SegmentId segment, Seconds timeout);
  void lose(planner::TierIndex tier, planner::SegmentId segment);

 private:
  PlannerPort& port_;
  Lifetime& lifetime_;
  CacheMemory& memory_;
  LinkQueues& queues_;
  CallTable& calls_;
};

}  // namespace ebb::store
