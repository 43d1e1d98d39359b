// Names, hints, and what can be asked.
#include <algorithm>

#include "runtime/engine.hpp"

namespace ebb::runtime {

policy::HistoryId Engine::history(const std::string& name, Order order) {
  if (forked()) return 0;  // every call on it is refused
  Lock lock(*this);
  const auto [found, added] = history_ids_.try_emplace(name, static_cast<policy::HistoryId>(histories_.size()));
  if (added) histories_.emplace_back().name = name;
  if (order != Order::none) histories_[found->second].order = order;
  return found->second;
}

Result<void> Engine::hint(policy::Event event) {
  if (auto error = forked()) return *error;
  Lock lock(*this);
  if (closed_) return closed_error();
  feed(event);
  return {};
}

Result<void> Engine::drop(policy::HistoryId history, std::optional<Version> version) {
  if (auto error = forked()) return *error;
  Lock lock(*this);
  if (closed_) return closed_error();
  if (setup_.readonly) return readonly_error();
  policy::Event event;
  event.kind = policy::EventKind::drop;
  event.history = history;
  event.version = version.value_or(0);
  event.flag = !version;
  feed(event);
  if (version) {
    histories_[history].versions.erase(*version);
    histories_[history].lost.erase(*version);
  } else {
    histories_[history].versions.clear();
    histories_[history].lost.clear();
  }
  return {};
}

Result<CheckpointInfo> Engine::info(policy::HistoryId history, Version version) {
  if (auto error = forked()) return *error;
  Lock lock(*this);
  if (closed_) return closed_error();
  // Also while it is still being written: a restore may be asked for then, and follows the writer's chunks.
  if (auto known = know(lock, history, version, false); !known) return known.error();
  if (const Record* record = find_record(history, version); record != nullptr && !record->reserved) return *record->info;
  // The planner knows the name of what it lacks.
  Request request;
  request.history = history;
  request.version = version;
  request.answer.reason = policy::Reason::unknown_version;
  if (!planner_->find(history, version)) {
    const Entered entered(*this, request);
    policy::Event event;
    event.kind = policy::EventKind::wait;
    event.history = history;
    event.version = version;
    event.tier = 0;
    event.request = request.id;
    feed(event);
  }
  return error_of(request);
}

std::vector<Version> Engine::versions(policy::HistoryId history) {
  std::vector<Version> found;
  if (forked()) return found;
  Lock lock(*this);
  refresh(lock);
  if (closed_) return found;
  for (const auto& [version, checkpoint] : histories_[history].versions) {
    if (planner_->find(history, version) == checkpoint) found.push_back(version);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Stats Engine::stats() {
  if (forked()) return {};
  Lock lock(*this);
  Stats stats = counters_;
  const policy::Machine& machine = planner_->machine();
  for (std::size_t tier = 0; tier < machine.tiers.size(); ++tier) {
    const policy::TierUse use = planner_->use(static_cast<policy::TierIndex>(tier));
    TierStats& told = stats.tiers.emplace_back();
    told = {machine.tiers[tier].name, use.capacity, use.used, use.largest_gap, use.replicas, use.evictions, hits_[tier], {}};
    if (machinery_->tiers) told.arena = machinery_->tiers->stats(static_cast<policy::TierIndex>(tier));
  }
  for (std::size_t link = 0; link < machine.links.size(); ++link) {
    const policy::LinkUse use = planner_->use(static_cast<int>(link));
    stats.links.push_back({machine.links[link].name, use.bytes, use.transfers, static_cast<double>(use.busy) * 1e-9,
                           use.estimate_bytes_per_s, use.failures});
  }
  constexpr std::array causes = {"copy", "room", "transfer", "wait"};
  for (std::size_t cause = 0; cause < causes.size(); ++cause) {
    stats.blocked_s[causes[cause]] = static_cast<double>(blocked_[cause]) * 1e-9;
  }
  const policy::Counters& counters = planner_->counters();
  stats.direct_writes = counters.direct_writes;
  stats.direct_reads = counters.direct_reads;
  stats.dropped_flushes = counters.dropped_flushes;
  stats.retries = counters.retries;
  stats.failures = counters.failures;
  stats.settings = setup_.settings;
  return stats;
}

}  // namespace ebb::runtime
