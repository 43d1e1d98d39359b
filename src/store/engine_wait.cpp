// Calls that only stand until something has happened.
#include <set>
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

using policy::Reason;

namespace {

Error no_level() { return {Errc::invalid_argument, "a restore has no level to wait for: wait for the restore itself"}; }

}  // namespace

Result<void> Engine::wait(policy::HistoryId history, std::optional<Version> version, std::string_view level,
                          std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  return wait_locked(locked, history, version, level, timeout, interrupted);
}

Result<void> Engine::wait_locked(Locked& locked, policy::HistoryId history, std::optional<Version> version,
                                 std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  auto tier = level_of(level);
  if (!tier) return tier.error();
  Request request;
  request.history = history;
  request.version = version.value_or(0);
  const Entered entered(*this, locked, request);
  const Timer timer(*this, locked, timeout, request.changed);
  if (version)
    port_.submit(locked, history, policy::event::Wait{request.id, *version, *tier});
  else
    port_.submit(locked, history, policy::event::WaitAll{request.id, *tier});
  serve(locked, request, &timer, interrupted);
  if (!request.answered) return lifetime_.closed_error();
  if (const auto wrong = catalog_.overwritten(locked, history, version); request.answer.reason == Reason::ok && wrong) {
    return *wrong;
  }
  if (request.answer.reason == Reason::ok && is_durability(level)) {
    auto kept = await_kept(locked, history, version, level, timer, interrupted);
    if (const auto wrong = catalog_.overwritten(locked, history, version); kept && wrong) kept = *wrong;
    statistics_.count_blocked(locked, Blocked::wait, request.started, request.copying, port_.now());
    return kept;
  }
  statistics_.count_blocked(locked, Blocked::wait, request.started, request.copying, port_.last_event(locked));
  if (request.answer.reason == Reason::ok) return {};
  const bool failed = request.answer.reason == Reason::lost || request.answer.reason == Reason::no_space;
  if (const auto why = failed ? catalog_.not_durable(locked, history, version) : std::nullopt) return *why;
  Error error = catalog_.refusal(locked, request.history, request.version, request.answer);
  if (const Record* const record = catalog_.find(locked, request.answer.checkpoint); failed && record != nullptr) {
    error.message =
        catalog_.key_text(locked, history, record->version) + " could not be written: " + request.answer.detail;
  }
  if (error.code == Errc::timed_out) {
    error.message = "the time limit passed, or the call was interrupted, before ";
    if (version)
      error.message += catalog_.key_text(locked, history, *version) + " was";
    else
      error.message += "everything written was";
    error.message += " complete on \"" + std::string(level) + "\" or below";
    // Who is still on the way, so that somebody can tell what holds it up.
    std::set<Version> missing;
    catalog_.for_each_written(locked, history, [&](Version one, policy::CheckpointRef checkpoint) {
      if ((version && one != *version) || port_.planner(locked).bytes_of(checkpoint) == 0) return;
      if (port_.planner(locked).lowest_complete(checkpoint) < *tier) missing.insert(one);
    });
    if (!version && !missing.empty()) {
      error.message += ": " + catalog_.key_text(locked, history, *missing.begin()) + " is not";
      if (missing.size() > 1) error.message += ", and " + std::to_string(missing.size() - 1) + " more";
    }
    const policy::TierSpec& on = port_.machine().tiers[static_cast<std::size_t>(*tier)];
    if (on.medium == policy::Medium::file) {
      error.message += "; its files are in " + setup_.directory.string();
    }
  }
  return error;
}

Error Engine::gone_before_kept(const Locked& locked, const Waitable& waitable) const {
  return {Errc::dropped,
          catalog_.key_text(locked, waitable.history, waitable.version) + " was dropped before it was durable"};
}

bool Engine::done(const Waitable& waitable, std::optional<std::string_view> level) {
  if (lifetime_.forked()) return true;
  Locked locked = port_.lock();
  if (!level) return waitable.ended;
  if (waitable.background) throw BadResult(no_level());
  auto tier = level_of(*level);
  if (!tier) throw BadResult(tier.error());
  const bool there = port_.planner(locked).find(waitable.history, waitable.version) == waitable.checkpoint;
  if (is_durability(*level)) {
    if (waitable.kept) return true;
    // Never "done" to whoever takes that for durable, also when it will be tried again.
    if (waitable.error) throw BadResult(*waitable.error);
    if (lifetime_.closed(locked)) throw BadResult(lifetime_.closed_error());
    if (!there) throw BadResult(gone_before_kept(locked, waitable));
    return false;
  }
  if (lifetime_.closed(locked) || waitable.error) return waitable.ended;
  if (!there) return true;  // consumed or dropped
  if (port_.planner(locked).bytes_of(waitable.checkpoint) == 0) return true;
  return port_.planner(locked).lowest_complete(waitable.checkpoint) >= *tier;
}

Result<void> Engine::wait(const Waitable& waitable, std::optional<std::string_view> level,
                          std::optional<Seconds> timeout) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (waitable.background) {
    if (level) return no_level();
    const Timer timer(*this, locked, timeout, machinery_->ended);
    const auto over = [&] { return waitable.ended || timer.fired || port_.poisoned(locked); };
    if (!over() && wants_pump(locked)) machinery_->pump.notify_one();
    EBB_WAIT(future_ended, machinery_->ended.wait(locked.native(), over));
    port_.throw_if_poisoned(locked);
    if (waitable.error) return *waitable.error;
    if (waitable.ended) return {};
    return Error{Errc::timed_out, "the time limit passed before " +
                                      catalog_.key_text(locked, waitable.history, waitable.version) +
                                      " was restored; it goes on"};
  }
  if (level) {
    if (const auto tier = level_of(*level); !tier) return tier.error();
    if (is_durability(*level) && waitable.kept) return {};
  }
  if (waitable.error) return *waitable.error;
  if (!level) return {};
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  const auto there = port_.planner(locked).find(waitable.history, waitable.version);
  if (there && *there != waitable.checkpoint) {
    return Error{Errc::dropped,
                 catalog_.key_text(locked, waitable.history, waitable.version) + " was dropped and written anew"};
  }
  Result<void> result = wait_locked(locked, waitable.history, waitable.version, *level, timeout, {});
  if (waitable.error) return *waitable.error;
  return result;
}

std::optional<Error> Engine::error(const Waitable& waitable) {
  if (auto error = lifetime_.forked()) return error;
  Locked locked = port_.lock();
  return waitable.error;
}

}  // namespace ebb::runtime
