// What calls need of snapshots, and what can be asked of the store.
#include <algorithm>
#include <limits>
#include <utility>

#include "storage/format/snapshot_names.hpp"
#include "store/engine.hpp"
#include "store/snapshot_access.hpp"

namespace ebb::store {

History Engine::view(std::string name, Order order) {
  auto [id, in_hand] = histories_.history(name, order);
  return History(shared_from_this(), id, std::move(name), std::move(in_hand));
}

Result<void> Engine::restore(planner::HistoryId history, Version version, std::span<const Target> targets,
                             const RestoreOptions& options, const Restored& restored) {
  if (auto error = parts_.lifetime.forked()) return *error;
  return reads_.until_settled(history, version, options, [&](const RestoreOptions& left) -> Result<void> {
    const auto done = reads_.restore(history, version, targets, left, Reads::Reading::whole);
    if (!done) return done.error();
    return *done ? Result<void>() : SnapshotAccess::restore(*this, history, version, targets, left, restored);
  });
}

Result<CheckpointInfo> Engine::info(planner::HistoryId history, Version version) {
  if (auto error = parts_.lifetime.forked()) return *error;
  return reads_.until_settled(history, version, {}, [&](const RestoreOptions& left) -> Result<CheckpointInfo> {
    auto stored = histories_.info(history, version);
    if (!stored || !storage::is_snapshot(*stored)) return stored;
    return SnapshotAccess::info(*this, history, version, left);
  });
}

planner::Retention Engine::retention() const {
  planner::Retention longest = parts_.setup.machine.retention;
  for (const planner::TierSpec& tier : parts_.setup.machine.tiers)
    if (tier.retention && longest.keep_last != 0 &&
        (tier.retention->keep_last == 0 || tier.retention->keep_last > longest.keep_last))
      longest = *tier.retention;
  return longest;
}

Result<void> Engine::check_files_sent() const {
  const planner::TierSpec& last = parts_.setup.machine.tiers.back();
  if (parts_.setup.veloc && !parts_.setup.readonly)
    return Error{
        Errc::unsupported,
        "files are not supported with veloc_rank: they have no place among VELOC's files; give them a store of "
        "their own"};
  if (!parts_.setup.shared || parts_.setup.readonly || last.every <= 1) return {};
  return Error{Errc::unsupported, "files are not supported with shared_every=" + std::to_string(last.every) +
                                      ": give them a store that sends every version on to the shared directory"};
}

void Engine::on_files_durable(OnFilesDurable act) {
  const Locked locked = parts_.port.lock();
  if (std::exchange(on_files_durable_, act) != act)
    parts_.files.on_part_durable(locked, [this, act](const std::string& history) { act(*this, history); });
}

Result<std::optional<Version>> Engine::latest(planner::HistoryId history, std::optional<Version> at_most,
                                              const Interrupt& interrupted) {
  if (auto error = parts_.lifetime.forked()) return *error;
  std::optional<Error> unread;
  for (;;) {
    Locked locked = parts_.port.lock();
    if (parts_.lifetime.closed(locked)) return parts_.lifetime.closed_error();
    auto newest = parts_.recovery.latest(locked, history, at_most, interrupted);
    locked.unlock();
    if (!newest) return newest;
    if (!*newest) break;
    const Version version = **newest;
    const auto before = parts_.recovery.objects_of_version(parts_.port.lock(), history, version);
    const auto stored = histories_.info(history, version);
    if (!stored || !storage::is_snapshot(*stored)) return newest;
    const auto whole = SnapshotAccess::check(*this, history, version, {.interrupted = interrupted});
    if (whole) return newest;
    const Error& why = whole.error();
    if (why.code == Errc::timed_out || why.code == Errc::closed) return why;
    if (parts_.setup.readonly) {  // another process may have packed it anew meanwhile
      locked.lock();
      const bool changed = !parts_.recovery.settle(locked, history, version, why, before);
      locked.unlock();
      if (changed) continue;
    }
    if (parts_.setup.log)
      parts_.setup.log.warning("version " + std::to_string(version) + " is passed over: " + why.message);
    locked.lock();
    if (parts_.lifetime.closed(locked)) return parts_.lifetime.closed_error();
    if (why.code == Errc::damaged || why.code == Errc::lost) {
      parts_.recovery.pass_over(locked, history, version, why);
    } else if (why.code != Errc::dropped) {
      unread = why;  // it cannot be judged
    }
    if (version == std::numeric_limits<Version>::min()) break;
    at_most = version - 1;
  }
  if (unread) return *unread;  // something is there
  return std::optional<Version>();
}

Stats Engine::stats() {
  if (parts_.lifetime.forked()) return {};
  const Locked locked = parts_.port.lock();
  Stats stats = parts_.statistics.stats(locked);
  for (std::size_t tier = 0; parts_.memory.share() && tier < stats.tiers.size(); ++tier) {
    stats.tiers[tier].arena = parts_.memory.tiers().stats(static_cast<planner::TierIndex>(tier));
  }
  stats.node = parts_.files.pool().stats(locked);
  stats.leases = leases_.stats();
  stats.settings = parts_.setup.settings;
  return stats;
}

}  // namespace ebb::store
