#include "store/lending.hpp"

#include <algorithm>

#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"

namespace ebb::store {
namespace {

LentBy lent_by(const Lending::Terms& terms) { return {terms.lender, terms.owner ? terms.owner->get() : nullptr}; }

}  // namespace

Result<void> Lending::add_owner(const std::shared_ptr<device::Device>& owner) {
  if (auto error = lifetime_.forked()) return *error;
  return queues_.add_owner(owner);
}

Result<planner::SegmentId> Lending::lend(planner::TierIndex tier, std::unique_ptr<cache::TierMemory> memory,
                                         const Terms& terms) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  return memory_.lend(locked, tier, std::move(memory), lent_by(terms));
}

bool Lending::extend(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes, const Terms& terms) {
  if (lifetime_.forked()) return false;
  const Locked locked = port_.lock();
  return memory_.extend(locked, tier, segment, bytes, lent_by(terms));
}

void Lending::limit(planner::PartyId lender, std::uint32_t link) {
  if (lifetime_.forked()) return;
  Locked locked = port_.lock();
  if (!lifetime_.running(locked)) return;
  port_.submit(locked, 0, planner::event::Limit{lender, link});
  queues_.drain(locked);  // what may go sooner now
}

bool Lending::recall(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
                     std::optional<Seconds> within) {
  if (lifetime_.forked()) return false;
  Locked locked = port_.lock();
  const planner::Time deadline = within ? later(port_.now(), *within) : planner::kNever;
  const bool recalled = memory_.recall(locked, tier, segment, bytes, deadline);
  queues_.drain(locked);  // what it moves away
  return recalled;
}

bool Lending::await_returned(planner::TierIndex tier, planner::SegmentId segment, Seconds timeout) {
  if (lifetime_.forked()) return false;
  Locked locked = port_.lock();
  // Added to a time, no timeout may be beyond all times.
  const std::chrono::nanoseconds wait(std::min(nanoseconds(timeout), planner::kNever / 2));
  return memory_.await_returned(locked, tier, segment, wait);
}

void Lending::lose(planner::TierIndex tier, planner::SegmentId segment) {
  if (lifetime_.forked()) return;
  Locked locked = port_.lock();
  memory_.lose(locked, tier, segment);
  calls_.wake_requests(locked);
  queues_.drain(locked);
}

}  // namespace ebb::store
