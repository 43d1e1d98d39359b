#include "store/waits.hpp"

#include <array>
#include <set>
#include <stdexcept>

#include "base/wait_points.hpp"
#include "options/defaults.hpp"
#include "store/call_statistics.hpp"
#include "store/call_table.hpp"
#include "store/callers.hpp"
#include "store/lifetime.hpp"
#include "store/persistence.hpp"
#include "store/timers.hpp"

namespace ebb::store {
namespace {

using planner::Reason;

Error no_level() { return {Errc::invalid_argument, "a restore has no level to wait for: wait for the restore itself"}; }

bool is_durability(std::string_view level) {
  if (level.starts_with('s')) return level == "storage" || level == "shared";
  return level == "process" || level == "node";
}

}  // namespace

Result<planner::TierIndex> Waits::level_of(std::string_view level) const {
  constexpr std::array<std::string_view, 3> levels = {"device", "host", "local"};
  const auto& tiers = port_.machine().tiers;
  if (level == "ephemeral" && !tiers.empty()) return planner::TierIndex{0};  // written: complete on any tier
  if (is_durability(level)) {
    const bool synced = setup_.durability != Durability::ephemeral && setup_.durability != Durability::process;
    if (level == "shared" && files_.tiers().size() > 1 && !setup_.readonly) return files_.tiers()[1]->index();
    if (level == "shared")
      return Error{Errc::unsupported, std::string("level=\"shared\" is not supported: this store ") +
                                          (setup_.readonly ? "was opened with readonly, and sends nothing there"
                                                           : "has no shared directory (shared=)")};
    if (level == "node" && files_.pool().storage() != nullptr) {
      return static_cast<planner::TierIndex>(port_.first_file() - 1);  // the host cache, which is in the pool
    }
    if (files_.persistent() && level != "node" && (level == "process" || synced)) return port_.first_file();
    return Error{Errc::unsupported, "level=\"" + std::string(level) +
                                        "\" is not supported: this store's durability is \"" +
                                        std::string(name_of(setup_.durability)) + "\""};
  }
  bool known = false;  // a tier that this store does not have is replaced by the next one below
  for (const std::string_view name : levels) {
    known = known || name == level;
    if (!known) continue;
    for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
      if (tiers[tier].name == name) return static_cast<planner::TierIndex>(tier);
    }
  }
  if (known) return Error{Errc::unsupported, "this store has no tier \"" + std::string(level) + "\", nor one below it"};
  return Error{Errc::invalid_argument,
               "level=\"" + std::string(level) +
                   "\" is not valid: expected one of \"device\", \"host\", \"local\", \"ephemeral\", "
                   "\"process\", \"node\", \"storage\", \"shared\""};
}

// --- for what was written ------------------------------------------------------------------------------------------

Result<void> Waits::wait(planner::HistoryId history, std::optional<Version> version, std::string_view level,
                         std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  return wait(locked, history, version, level, timeout, interrupted);
}

Result<void> Waits::wait(Locked& locked, planner::HistoryId history, std::optional<Version> version,
                         std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  using Blocked = CallStatistics::Blocked;
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  auto tier = level_of(level);
  if (!tier) return tier.error();
  CallRow request;
  request.history = history;
  request.version = version.value_or(0);
  const CallTable::Entered entered(calls_, locked, request);
  const Timer timer(timers_, locked, port_.now(), timeout, request.changed);
  if (files_.pool().storage() != nullptr && !port_.in_memory(*tier)) {  // what the disk has refused is tried once more
    files_.objects().set_tried_again(locked, history, version);
    files_.commit(locked);
  }
  if (version)
    port_.submit(locked, history, planner::event::Wait{request.id, *version, *tier});
  else
    port_.submit(locked, history, planner::event::WaitAll{request.id, *tier});
  callers_.run_until_answered(locked, request, &timer, interrupted);
  if (!request.answered) return lifetime_.closed_error();
  const bool reached = request.answer.reason == Reason::ok;
  const bool judged = reached || request.answer.reason == Reason::lost;  // in time
  if (const auto wrong = catalog_.overwritten(locked, history, version); judged && wrong) return *wrong;
  if (reached && is_durability(level)) {
    auto durable = files_.await(locked, history, version, level, *tier, timer, interrupted);
    if (const auto wrong = catalog_.overwritten(locked, history, version); durable && wrong) durable = *wrong;
    statistics_.count_blocked(locked, Blocked::wait, request.started, request.copying, port_.now());
    return durable;
  }
  statistics_.count_blocked(locked, Blocked::wait, request.started, request.copying, port_.last_event(locked));
  if (reached) return {};
  const bool failed = request.answer.reason == Reason::lost || request.answer.reason == Reason::no_space;
  const std::size_t last = port_.in_memory(*tier) ? 0 : port_.file_number(*tier);
  for (std::size_t file = 0; failed && file <= last; ++file)  // what one lacks does not come to the next
    if (const auto why = files_.objects().not_durable(locked, history, version, file)) return *why;
  Error error = catalog_.refusal(locked, history, request.version, request.answer);
  if (const Record* const record = catalog_.find(locked, request.answer.checkpoint); failed && record != nullptr) {
    error.message =
        catalog_.key_text(locked, history, record->version) + " could not be written: " + request.answer.detail;
    if (error.code == Errc::lost && port_.planner(locked).find(history, record->version)) {  // it is still above
      const Error* const trouble = record->trouble.get();
      error.code = trouble != nullptr && trouble->code == Errc::no_space ? Errc::no_space : Errc::io_error;
      if (trouble != nullptr) error.message += " (" + trouble->message + ")";
    }
  }
  if (error.code == Errc::timed_out) error.message = missing_text(locked, history, version, level, *tier);
  return files_.pool().with_agent(std::move(error));
}

// Says which checkpoints are still on their way, so that one can tell what holds them up.
std::string Waits::missing_text(const Locked& locked, planner::HistoryId history, std::optional<Version> version,
                                std::string_view level, planner::TierIndex tier) const {
  std::string text = "the time limit passed, or the call was interrupted, before " +
                     (version ? catalog_.key_text(locked, history, *version) : std::string("everything written")) +
                     " was complete on \"" + std::string(level) + "\" or below";
  const planner::Planner& planner = port_.planner(locked);
  std::set<Version> missing;
  catalog_.for_each_written(locked, history, [&](Version one, planner::CheckpointRef checkpoint) {
    if ((version && one != *version) || planner.bytes_of(checkpoint) == 0) return;
    if (planner.lowest_complete(checkpoint) < tier) missing.insert(one);
  });
  if (!version && !missing.empty()) {
    text += ": " + catalog_.key_text(locked, history, *missing.begin()) + " is not";
    if (missing.size() > 1) text += ", and " + std::to_string(missing.size() - 1) + " more";
  }
  if (!port_.in_memory(tier)) text += "; its files are in " + files_.tiers().at(tier).directory().string();
  return text;
}

Result<void> Waits::check_durability(std::string_view level) const {
  if (const auto known = level_of(level); !known) return known.error();
  if (is_durability(level)) return {};
  return Error{Errc::invalid_argument,
               "level=\"" + std::string(level) +
                   "\" is not valid: expected one of \"process\", \"node\", \"storage\", \"shared\""};
}

Result<void> Waits::drain(Locked& locked, std::string_view level, planner::Time until, const Interrupt& interrupted) {
  if (!files_.persistent() || setup_.readonly || port_.poisoned(locked) || !lifetime_.opened(locked)) {
    return {};
  }
  Result<void> result;
  for (planner::HistoryId history = 0; history < catalog_.histories(locked); ++history) {
    if (asked_to_stop(locked, interrupted)) return Error{Errc::timed_out, "the call was interrupted"};
    std::optional<Seconds> left;
    if (until != planner::kNever) {
      left = Seconds(static_cast<double>(std::max<planner::Time>(0, until - port_.now())) * 1e-9);
    }
    const Result<void> one = wait(locked, history, {}, level, left, interrupted);
    if (!one && (result || one.error().code == Errc::timed_out)) result = one;
  }
  for (std::size_t file = 0; result && file < files_.tiers().size(); ++file)
    result = files_.tiers().check_names(locked, file);
  return result;
}

// --- for Futures ---------------------------------------------------------------------------------------------------

Error Waits::dropped_error(const Locked& locked, const Waitable& waitable) const {
  return {Errc::dropped,
          catalog_.key_text(locked, waitable.history, waitable.version) + " was dropped before it was durable"};
}

// On this tier or below it.
bool Waits::is_durable(const Waitable& waitable, std::string_view level, planner::TierIndex tier) const {
  const std::size_t file = port_.in_memory(tier) ? 0 : port_.file_number(tier);
  return waitable.durable >> file != 0 || (waitable.listed && level == "node");
}

bool Waits::done(const Waitable& waitable, std::optional<std::string_view> level) {
  if (lifetime_.forked()) return true;
  Locked locked = port_.lock();
  if (!level) return waitable.ended;
  if (waitable.background) throw BadResult(no_level());
  auto tier = level_of(*level);
  if (!tier) throw BadResult(tier.error());
  const planner::Planner& planner = port_.planner(locked);
  const bool there = planner.find(waitable.history, waitable.version) == waitable.checkpoint;
  if ((*tier >= port_.first_file() || *level == "node") && is_durability(*level)) {
    if (is_durable(waitable, *level, *tier)) return true;
    // "Done" means durable: an error throws, also when the write will be tried again.
    if (waitable.error) throw BadResult(*waitable.error);
    if (*tier > port_.first_file())
      if (const auto why =
              files_.objects().not_durable(locked, waitable.history, waitable.version, port_.file_number(*tier)))
        throw BadResult(*why);
    if (lifetime_.closed(locked)) throw BadResult(lifetime_.closed_error());
    if (!there) throw BadResult(dropped_error(locked, waitable));
    return false;
  }
  if (lifetime_.closed(locked) || waitable.error) return waitable.ended;
  if (!there) return true;  // consumed or dropped
  if (planner.bytes_of(waitable.checkpoint) == 0) return true;
  return planner.lowest_complete(waitable.checkpoint) >= *tier;
}

Result<void> Waits::wait(const Waitable& waitable, std::optional<std::string_view> level,
                         std::optional<Seconds> timeout) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (waitable.background) return level ? no_level() : wait_restored(locked, waitable, timeout);
  if (level) {
    const auto tier = level_of(*level);
    if (!tier) return tier.error();
    if (is_durability(*level) && is_durable(waitable, *level, *tier)) return {};
  }
  const auto its = [&](const Error& otherwise) { return waitable.error ? *waitable.error : otherwise; };
  if (!level) return waitable.error ? Result<void>(*waitable.error) : Result<void>();
  if (lifetime_.closed(locked)) return its(lifetime_.closed_error());
  const auto there = port_.planner(locked).find(waitable.history, waitable.version);
  if (there && *there != waitable.checkpoint) {
    return its({Errc::dropped,
                catalog_.key_text(locked, waitable.history, waitable.version) + " was dropped and written anew"});
  }
  // Also after an error: this wait tries again what the disk refused, and what has reached `level` has done so.
  Result<void> result = wait(locked, waitable.history, waitable.version, *level, timeout, {});
  if (!result) return its(result.error());
  return result;
}

Result<void> Waits::wait_restored(Locked& locked, const Waitable& waitable, std::optional<Seconds> timeout) {
  const Timer timer(timers_, locked, port_.now(), timeout, port_.ended());
  const auto over = [&] { return waitable.ended || timer.fired() || port_.poisoned(locked); };
  if (!over()) locked.wake_pump();
  EBB_WAIT(future_ended, port_.ended().wait(locked.native(), over));
  port_.throw_if_poisoned(locked);
  if (waitable.error) return *waitable.error;
  if (waitable.ended) return {};
  return Error{Errc::timed_out, "the time limit passed before " +
                                    catalog_.key_text(locked, waitable.history, waitable.version) +
                                    " was restored; it goes on"};
}

std::optional<Error> Waits::error(const Waitable& waitable) {
  if (auto error = lifetime_.forked()) return error;
  const Locked locked = port_.lock();
  return waitable.error;
}

void Waits::keep_until_ended(Waitable& waitable, std::shared_ptr<const void> what) {
  if (lifetime_.forked()) return;
  const Locked locked = port_.lock();
  if (!waitable.ended) waitable.kept.swap(what);
  if (what) port_.let_go(locked, std::move(what));
}

}  // namespace ebb::store
