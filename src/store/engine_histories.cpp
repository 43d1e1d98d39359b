// Names, hints, and what can be asked.
#include <algorithm>
#include <limits>
#include <utility>

#include "store/engine.hpp"
#include "store/snapshot_reader.hpp"

namespace ebb::store {

std::pair<planner::HistoryId, std::shared_ptr<const InHand>> Engine::history(const std::string& name, Order order) {
  if (lifetime_.forked()) return {};  // every call on it is refused
  const Locked locked = port_.lock();
  if (!lifetime_.running(locked)) return {};  // likewise
  return catalog_.open_history(locked, name, order);
}

History Engine::view(std::string name, Order order) {
  auto [id, in_hand] = history(name, order);
  return History(shared_from_this(), id, std::move(name), std::move(in_hand));
}

Result<void> Engine::hint(planner::HistoryId history, planner::event::Any hint) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  using namespace planner::event;
  if (!std::holds_alternative<Unhint>(hint) && !std::holds_alternative<UnhintAll>(hint)) {
    catalog_.mark_used(locked, history);
  }
  port_.submit(locked, history, std::move(hint));
  return {};
}

bool Engine::hinted(planner::HistoryId history, Version version) {
  const Locked locked = port_.lock();
  return lifetime_.running(locked) && port_.planner(locked).hinted(history, version);
}

std::optional<Version> Engine::next_hinted(planner::HistoryId history) {
  const Locked locked = port_.lock();
  return lifetime_.running(locked) ? port_.planner(locked).next_hinted(history) : std::nullopt;
}

Result<void> Engine::drop(planner::HistoryId history, std::optional<Version> version) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (setup_.readonly) return readonly_error();
  drop(locked, history, version);
  return {};
}

void Engine::drop(const Locked& locked, planner::HistoryId history, std::optional<Version> version) {
  if (version)
    port_.submit(locked, history, planner::event::Drop{*version});
  else
    port_.submit(locked, history, planner::event::DropAll{});
  files_.withdraw_dropped(locked, history, version);
  catalog_.forget(locked, history, version);
}

bool Engine::wait_for_drops(Seconds limit, const Interrupt& interrupted) {
  constexpr auto kLook = std::chrono::milliseconds(1);
  const planner::Time until = now() + nanoseconds(limit);
  std::optional<std::uint64_t> drops;
  for (;;) {
    {
      const Locked locked = port_.lock();
      const storage::PersistentStorage* const persistent = files_.persistent();
      if (persistent == nullptr || !lifetime_.running(locked)) return persistent == nullptr;
      if (!drops) {
        drops = persistent->drops();
        files_.commit(locked);
      }
      if (persistent->drops_done() >= *drops) return true;
    }
    if (now() >= until || (interrupted && interrupted())) return false;
    std::this_thread::sleep_for(kLook);
  }
}

Result<CheckpointInfo> Engine::info(planner::HistoryId history, Version version) {
  auto stored = stored_info(history, version);
  if (!stored || !storage::is_snapshot(*stored)) return stored;
  return SnapshotReader(*this, history, version, {}).info();
}

Result<CheckpointInfo> Engine::stored_info(planner::HistoryId history, Version version) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  // Also while it is still being written: a restore may be asked for then, and follows the writer's chunks.
  if (auto loaded = recovery_.load_metadata(locked, history, version, false); !loaded) return loaded.error();
  if (const Record* record = catalog_.find(locked, history, version); record != nullptr && !record->reserved)
    return *record->info;
  // The planner's refusal says why the version is not there.
  Request request;
  request.answer.reason = planner::Reason::unknown_version;
  if (!port_.planner(locked).find(history, version)) {
    const CallTable::Entered entered(calls_, locked, request);
    port_.submit(locked, history, planner::event::Wait{request.id, version, 0});
  }
  return catalog_.refusal(locked, history, version, request.answer);
}

Result<std::vector<Version>> Engine::versions(planner::HistoryId history) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  recovery_.refresh(locked);
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  std::vector<Version> found;
  catalog_.for_each_written(locked, history, [&](Version version, auto) { found.push_back(version); });
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::vector<std::string>> Engine::names(std::string_view prefix) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  recovery_.refresh(locked);
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  return catalog_.names(locked, prefix);
}

Engine::Standing Engine::standing(std::span<const std::string> names) {
  if (lifetime_.forked()) return {};
  const Locked locked = port_.lock();
  return standing(locked, names);
}

Engine::Standing Engine::standing(const Locked& locked, std::span<const std::string> names) {
  if (!lifetime_.running(locked)) return {};
  Standing found{.safe = true};
  for (const std::string& name : names) {
    catalog_.for_each_written(
        locked, catalog_.number_of(locked, name), [&](Version, planner::CheckpointRef checkpoint) {
          const Record* const record = catalog_.find(locked, checkpoint);
          if (record == nullptr) return;
          const bool ours = record->recovered == 0;
          found.safe = found.safe && record->durability == Record::Durability::durable && (ours || record->checked);
          found.ours = found.ours || ours;
          found.order = std::max(found.order, record->order);
        });
  }
  found.safe = found.safe && found.order > 0;
  return found;
}

void Engine::drop_unchanged(std::span<const std::string> names, const Standing& known) {
  if (lifetime_.forked()) return;
  const Locked locked = port_.lock();
  if (standing(locked, names) != known) return;
  for (const std::string& name : names) drop(locked, catalog_.number_of(locked, name), {});
}

void Engine::on_files_durable(OnFilesDurable act) {
  const Locked locked = port_.lock();
  if (std::exchange(on_files_durable_, act) != act)
    files_.on_part_durable(locked, [this, act](const std::string& history) { act(*this, history); });
}

Result<std::optional<Version>> Engine::latest(planner::HistoryId history, std::optional<Version> at_most,
                                              const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  std::optional<Error> unread;
  for (;;) {
    Locked locked = port_.lock();
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    auto newest = recovery_.latest(locked, history, at_most, interrupted);
    locked.unlock();
    if (!newest) return newest;
    if (!*newest) break;
    const Version version = **newest;
    const storage::ObjectId before = recovery_.object_of(port_.lock(), history, version);
    const auto stored = stored_info(history, version);
    if (!stored || !storage::is_snapshot(*stored)) return newest;
    const auto whole = SnapshotReader(*this, history, version, {.interrupted = interrupted}).check();
    if (whole) return newest;
    const Error& why = whole.error();
    if (why.code == Errc::timed_out || why.code == Errc::closed) return why;
    if (setup_.readonly) {  // another process may have packed it anew meanwhile
      locked.lock();
      const bool changed = !recovery_.settle(locked, history, version, why, before);
      locked.unlock();
      if (changed) continue;
    }
    if (setup_.log) setup_.log.warning("version " + std::to_string(version) + " is passed over: " + why.message);
    locked.lock();
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    if (why.code == Errc::damaged || why.code == Errc::lost) {
      recovery_.pass_over(locked, history, version, why);
    } else if (why.code != Errc::dropped) {
      unread = why;  // it cannot be judged
    }
    if (version == std::numeric_limits<Version>::min()) break;
    at_most = version - 1;
  }
  if (unread) return *unread;  // something is there
  return std::optional<Version>();
}

std::string Engine::name_of(planner::HistoryId history) {
  const Locked locked = port_.lock();
  return catalog_.name_of(locked, history);
}

std::string Engine::key_text(planner::HistoryId history, Version version) {
  const Locked locked = port_.lock();
  return catalog_.key_text(locked, history, version);
}

Stats Engine::stats() {
  if (lifetime_.forked()) return {};
  const Locked locked = port_.lock();
  Stats stats = statistics_.stats(locked);
  for (std::size_t tier = 0; memory_.share() && tier < stats.tiers.size(); ++tier) {
    stats.tiers[tier].arena = memory_.tiers().stats(static_cast<planner::TierIndex>(tier));
  }
  stats.node = files_.node_stats(locked);
  stats.leases = neighbours_.stats();
  stats.settings = setup_.settings;
  return stats;
}

}  // namespace ebb::store
