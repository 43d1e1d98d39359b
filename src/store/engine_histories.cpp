// Names, hints, and what can be asked.
#include <algorithm>

#include "store/engine.hpp"

namespace ebb::runtime {

std::pair<policy::HistoryId, std::shared_ptr<const InHand>> Engine::history(const std::string& name, Order order) {
  if (forked()) return {};  // every call on it is refused
  Locked locked = port_.lock();
  if (closed_ || port_.poisoned(locked)) return {};  // likewise
  return catalog_.open_history(locked, name, order);
}

Result<void> Engine::hint(policy::HistoryId history, policy::event::Any hint) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  using namespace policy::event;
  if (!std::holds_alternative<Unhint>(hint) && !std::holds_alternative<UnhintAll>(hint)) {
    catalog_.mark_used(locked, history);
  }
  port_.submit(locked, history, std::move(hint));
  return {};
}

Result<void> Engine::drop(policy::HistoryId history, std::optional<Version> version) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  if (setup_.readonly) return readonly_error();
  if (version)
    port_.submit(locked, history, policy::event::Drop{*version});
  else
    port_.submit(locked, history, policy::event::DropAll{});
  catalog_.forget(locked, history, version);
  return {};
}

Result<CheckpointInfo> Engine::info(policy::HistoryId history, Version version) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  // Also while it is still being written: a restore may be asked for then, and follows the writer's chunks.
  if (auto known = know(locked, history, version, false); !known) return known.error();
  if (const Record* record = catalog_.find(locked, history, version); record != nullptr && !record->reserved)
    return *record->info;
  // The planner knows the name of what it lacks.
  Request request;
  request.history = history;
  request.version = version;
  request.answer.reason = policy::Reason::unknown_version;
  if (!port_.planner(locked).find(history, version)) {
    const Entered entered(*this, locked, request);
    port_.submit(locked, history, policy::event::Wait{request.id, version, 0});
  }
  return catalog_.refusal(locked, request.history, request.version, request.answer);
}

Result<std::vector<Version>> Engine::versions(policy::HistoryId history) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  refresh(locked);
  if (closed_) return closed_error();
  std::vector<Version> found;
  catalog_.for_each_written(locked, history, [&](Version version, auto) { found.push_back(version); });
  std::sort(found.begin(), found.end());
  return found;
}

Stats Engine::stats() {
  if (forked()) return {};
  Locked locked = port_.lock();
  Stats stats = counters_;
  const policy::Machine& machine = port_.machine();
  for (std::size_t tier = 0; tier < machine.tiers.size(); ++tier) {
    const policy::TierUse use = port_.planner(locked).use(static_cast<policy::TierIndex>(tier));
    TierStats& told = stats.tiers.emplace_back();
    told = {machine.tiers[tier].name,
            use.capacity,
            use.used,
            use.largest_gap,
            use.replicas,
            use.evictions,
            hits_[tier],
            {}};
    if (machinery_->tiers) told.arena = machinery_->tiers->stats(static_cast<policy::TierIndex>(tier));
  }
  for (std::size_t link = 0; link < machine.links.size(); ++link) {
    const policy::LinkUse use = port_.planner(locked).use(static_cast<int>(link));
    stats.links.push_back({machine.links[link].name, use.bytes, use.transfers, static_cast<double>(use.busy) * 1e-9,
                           use.estimate_bytes_per_s, use.failures});
  }
  constexpr std::array causes = {"copy", "room", "transfer", "wait"};
  for (std::size_t cause = 0; cause < causes.size(); ++cause) {
    stats.blocked_s[causes[cause]] = static_cast<double>(blocked_[cause]) * 1e-9;
  }
  const policy::Counters& counters = port_.planner(locked).counters();
  stats.direct_writes = counters.direct_writes;
  stats.direct_reads = counters.direct_reads;
  stats.dropped_flushes = counters.dropped_flushes;
  stats.retries = counters.retries;
  stats.failures = counters.failures;
  stats.settings = setup_.settings;
  return stats;
}

}  // namespace ebb::runtime
