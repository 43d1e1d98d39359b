// Names, hints, and what can be asked.
#include <algorithm>

#include "storage/format/record.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

namespace {

constexpr std::size_t kShown = 64;  // bytes of a name that is too long to be shown

}  // namespace

std::pair<policy::HistoryId, std::shared_ptr<const InHand>> Engine::history(const std::string& name, Order order) {
  if (forked()) return {};  // every call on it is refused
  Locked locked = port_.lock();
  if (closed_ || port_.poisoned(locked)) return {};  // likewise
  // One that was dropped begins anew, whether or not it has been looked for.
  const auto known = history_ids_.find(name);
  if (known != history_ids_.end() && !forget_history(locked, known->second)) {
    HistoryState& state = histories_[known->second];
    if (state.blank && state.in_hand.use_count() == 1) state.order = Order::none;
  }
  const policy::HistoryId id = number_of(locked, name);
  HistoryState& state = histories_[id];
  if (order != Order::none) {
    state.order = order;
    state.blank = false;
  }
  return {id, state.in_hand};
}

// Makes it if it is not there.
policy::HistoryId Engine::number_of(const Locked& locked, const std::string& name) {
  if (const auto known = history_ids_.find(name); known != history_ids_.end()) return known->second;
  if (history_ids_.size() >= look_for_dropped_at_) forget_histories(locked);
  if (free_histories_.empty()) {
    free_histories_.push_back(static_cast<policy::HistoryId>(histories_.size()));
    histories_.emplace_back();
  }
  const policy::HistoryId id = free_histories_.back();
  history_ids_.emplace(name, id);
  free_histories_.pop_back();
  histories_[id].name = name;
  return id;
}

// False: it has something that must not be forgotten, or somebody has a handle of it.
bool Engine::forget_history(const Locked& locked, policy::HistoryId history) {
  HistoryState& state = histories_[history];
  if (history == 0 || !state.blank || state.in_hand.use_count() > 1 || !state.versions.empty() || !state.lost.empty() ||
      !port_.planner(locked).idle(history)) {
    return false;
  }
  port_.submit(locked, history, policy::event::Forget{});
  history_ids_.erase(state.name);
  free_histories_.push_back(history);
  state = {};
  return true;
}

// Each look costs as much as there are names, and happens when there are twice as many as it left: a store that makes
// and drops histories for days has at most twice as many as are in use.
void Engine::forget_histories(const Locked& locked) {
  for (auto at = history_ids_.begin(); at != history_ids_.end();) forget_history(locked, (at++)->second);
  look_for_dropped_at_ = std::max<std::size_t>(16, 2 * history_ids_.size());
}

Result<void> Engine::check_name(const Locked& /*locked*/, policy::HistoryId history) const {
  const std::string& name = histories_[history].name;
  if (name.size() <= storage::kMaxName) return {};
  return Error{Errc::invalid_argument, "the history's name (\"" + name.substr(0, kShown) + "...\") has " +
                                           std::to_string(name.size()) + " bytes: it may have " +
                                           std::to_string(storage::kMaxName) + " at most"};
}

Result<void> Engine::hint(policy::HistoryId history, policy::event::Any hint) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  port_.submit(locked, history, std::move(hint));
  return {};
}

Result<void> Engine::drop(policy::HistoryId history, std::optional<Version> version) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  if (setup_.readonly) return readonly_error();
  if (version) {
    port_.submit(locked, history, policy::event::Drop{*version});
    histories_[history].versions.erase(*version);
    histories_[history].lost.erase(*version);
  } else {
    port_.submit(locked, history, policy::event::DropAll{});
    histories_[history].versions.clear();
    histories_[history].lost.clear();
    histories_[history].blank = true;
  }
  return {};
}

Result<CheckpointInfo> Engine::info(policy::HistoryId history, Version version) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  // Also while it is still being written: a restore may be asked for then, and follows the writer's chunks.
  if (auto known = know(locked, history, version, false); !known) return known.error();
  if (const Record* record = find_record(locked, history, version); record != nullptr && !record->reserved)
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
  return error_of(locked, request);
}

Result<std::vector<Version>> Engine::versions(policy::HistoryId history) {
  if (auto error = forked()) return *error;
  Locked locked = port_.lock();
  if (closed_) return closed_error();
  refresh(locked);
  if (closed_) return closed_error();
  std::vector<Version> found;
  for (const auto& [version, checkpoint] : histories_[history].versions) {
    if (port_.planner(locked).find(history, version) == checkpoint) found.push_back(version);
  }
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
