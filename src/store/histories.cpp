#include "store/histories.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace ebb::store {

Error readonly_error(const options::EngineSetup& setup) {
  return {Errc::unsupported,
          "the store in " + setup.directory.string() + " was opened with readonly: nothing can be written"};
}

std::pair<planner::HistoryId, std::shared_ptr<const InHand>> Histories::history(const std::string& name, Order order) {
  if (lifetime_.forked()) return {};  // every call on it is refused
  const Locked locked = port_.lock();
  if (!lifetime_.running(locked)) return {};  // likewise
  return catalog_.open_history(locked, name, order);
}

Result<void> Histories::hint(planner::HistoryId history, planner::event::Any hint) {
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

Result<void> Histories::agree(planner::HistoryId history, Version version) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (!setup_.machine.retention.agreed)
    return Error{Errc::unsupported, "the store was not opened with agreed=true: its keep_last counts every version"};
  catalog_.mark_used(locked, history);
  port_.submit(locked, history, planner::event::Agreed{version});
  return {};
}

bool Histories::hinted(planner::HistoryId history, Version version) {
  const Locked locked = port_.lock();
  return lifetime_.running(locked) && port_.planner(locked).hinted(history, version);
}

std::optional<Version> Histories::next_hinted(planner::HistoryId history) {
  const Locked locked = port_.lock();
  return lifetime_.running(locked) ? port_.planner(locked).next_hinted(history) : std::nullopt;
}

Result<void> Histories::drop(planner::HistoryId history, std::optional<Version> version) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (setup_.readonly) return readonly_error(setup_);
  drop(locked, history, version);
  return {};
}

void Histories::drop(const Locked& locked, planner::HistoryId history, std::optional<Version> version) {
  if (version)
    port_.submit(locked, history, planner::event::Drop{*version});
  else
    port_.submit(locked, history, planner::event::DropAll{});
  files_.pool().withdraw_dropped(locked, history, version);
  catalog_.forget(locked, history, version);
  port_.ended().notify_all();  // a wait for all that was written is not for these any more
}

bool Histories::wait_for_drops(Seconds limit, const Interrupt& interrupted) {
  constexpr auto kLook = std::chrono::milliseconds(1);
  const planner::Time until = port_.now() + nanoseconds(limit);
  std::vector<std::uint64_t> drops;  // by file tier
  for (;;) {
    {
      const Locked locked = port_.lock();
      if (!files_.persistent() || !lifetime_.running(locked)) return !files_.persistent();
      if (drops.empty()) {
        for (const auto& tier : files_.tiers()) drops.push_back(tier->persistent()->drops());
        files_.commit(locked);
      }
      const bool done = std::ranges::equal(drops, files_.tiers(), [](std::uint64_t asked, const auto& tier) {
        return tier->persistent()->drops_done() >= asked;
      });
      if (done) return true;
    }
    if (port_.now() >= until || (interrupted && interrupted())) return false;
    std::this_thread::sleep_for(kLook);
  }
}

Result<CheckpointInfo> Histories::info(planner::HistoryId history, Version version) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  // Also while it is still being written: a restore may be asked for then, and follows the writer's chunks.
  if (auto loaded = recovery_.load_metadata(locked, history, version, false); !loaded) return loaded.error();
  if (const Record* record = catalog_.find(locked, history, version); record != nullptr && !record->reserved)
    return *record->info;
  // The planner's refusal says why the version is not there.
  CallRow request;
  request.answer.reason = planner::Reason::unknown_version;
  if (!port_.planner(locked).find(history, version)) {
    const CallTable::Entered entered(calls_, locked, request);
    port_.submit(locked, history, planner::event::Wait{request.id, version, 0});
  }
  return catalog_.refusal(locked, history, version, request.answer);
}

Result<std::optional<std::string>> Histories::tier_of(planner::HistoryId history, Version version) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  const planner::Planner& planner = port_.planner(locked);
  const auto found = planner.find(history, version);
  const planner::TierIndex tier = found ? planner.fastest_complete(*found) : planner::kNoTier;
  if (tier == planner::kNoTier) return std::optional<std::string>();
  return std::optional(planner.machine().tiers[static_cast<std::size_t>(tier)].name);
}

Result<std::vector<Version>> Histories::versions(planner::HistoryId history) {
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

Result<std::vector<std::string>> Histories::names(std::string_view prefix) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  recovery_.refresh(locked);
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  return catalog_.names(locked, prefix);
}

Histories::Standing Histories::standing(std::span<const std::string> names) {
  if (lifetime_.forked()) return {};
  const Locked locked = port_.lock();
  return standing(locked, names);
}

Histories::Standing Histories::standing(const Locked& locked, std::span<const std::string> names) {
  if (!lifetime_.running(locked)) return {};
  Standing found{.safe = true};
  const std::size_t last = files_.tiers().size() - 1;  // what is not there yet makes up for nothing that is
  for (const std::string& name : names) {
    catalog_.for_each_written(locked, catalog_.number_of(locked, name),
                              [&](Version, planner::CheckpointRef checkpoint) {
                                const Record* const record = catalog_.find(locked, checkpoint);
                                if (record == nullptr) return;
                                const bool ours = !record->recovered_in();
                                const auto file = record->durable_in(last);
                                found.safe = found.safe && file && (ours || record->files[*file].checked);
                                found.ours = found.ours || ours;
                                found.order = std::max(found.order, record->order);
                              });
  }
  found.safe = found.safe && found.order > 0;
  return found;
}

void Histories::drop_unchanged(std::span<const std::string> names, const Standing& known) {
  if (lifetime_.forked()) return;
  const Locked locked = port_.lock();
  if (standing(locked, names) != known) return;
  for (const std::string& name : names) drop(locked, catalog_.number_of(locked, name), {});
}

std::string Histories::name_of(planner::HistoryId history) {
  const Locked locked = port_.lock();
  return catalog_.name_of(locked, history);
}

std::string Histories::key_text(planner::HistoryId history, Version version) {
  const Locked locked = port_.lock();
  return catalog_.key_text(locked, history, version);
}

}  // namespace ebb::store
