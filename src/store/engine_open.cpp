// How a store is opened and closed.
#include <algorithm>

#include "base/own_process.hpp"
#include "base/start_thread.hpp"
#include "planner/closing.hpp"
#include "planner/lease_ledger.hpp"
#include "planner/record_choice.hpp"
#include "share/pool/pool_header.hpp"
#include "store/engine.hpp"

namespace ebb::store {
Engine::Engine(options::Seams seams, options::EngineSetup setup)
    : parts_(std::move(seams), std::move(setup)),
      histories_(parts_),
      writes_(parts_),
      reads_(parts_),
      leases_(parts_),
      suspender_(*this) {}

Result<std::shared_ptr<Engine>> Engine::open(options::Seams seams, options::EngineSetup setup) {
  if (setup.pool) {
    const auto shape = share::choose_shape(setup.pool->budget, setup.pool->chunk_bytes, setup.local_ranks);
    if (!shape) return shape.error();
    for (planner::TierSpec& tier : setup.machine.tiers)
      if (tier.medium == planner::Medium::host) tier.capacity = share::cache_share(*shape, setup.local_ranks);
  }
  const bool files = std::ranges::count(setup.machine.tiers, planner::Medium::file, &planner::TierSpec::medium) > 0;
  setup.machine.releases_later = !setup.machine.ephemeral && files && !setup.readonly && !setup.pool;
  std::shared_ptr<Engine> engine;
  const auto start = [&]() -> Result<void> {
    try {
      engine.reset(new Engine(std::move(seams), std::move(setup)), base::InOwnProcess{});
      return engine->start();
    } catch (const base::ThreadRefused& refused) {
      return base::no_thread(refused);
    } catch (const std::system_error& error) {
      return Error{Errc::io_error, std::string("the store could not be opened: ") + error.what()};
    }
  };
  if (auto started = start(); !started) {
    if (!engine) return started.error();
    const Locked locked = engine->parts_.port.lock();
    if (!engine->parts_.lifetime.opened(locked)) engine->parts_.files.tiers().unmake(locked);
    return started.error();
  }
  return engine;
}

Result<void> Engine::start() {
  parts_.setup.machine = parts_.port.machine();
  const auto memory_log = parts_.setup.event_log ? std::make_shared<trace::ProvisionLog>() : nullptr;
  const Persistence::Reports reports{
      .done = [this](transfer::Token token, const Result<void>& result) { parts_.queues.on_done(token, result); },
      .carried = [this](transfer::Token token) { parts_.queues.on_carried(token); }};
  if (auto joined = parts_.files.join_pool(reports); !joined) return joined;
  if (auto made = parts_.memory.create(
          parts_.seams, parts_.setup, [this] { parts_.queues.on_memory(); }, memory_log);
      !made)
    return made;
  if (auto made = parts_.queues.create(parts_.seams); !made) return made;
  if (auto opened = parts_.files.open(reports); !opened) return opened;
  parts_.queues.set_files();
  if (parts_.setup.event_log) {
    auto log = trace::EventLog::create(*parts_.seams.files, *parts_.setup.event_log);
    if (!log) return log.error();
    parts_.port.begin_log(std::move(*log), memory_log);
  }
  parts_.pump.start();
  parts_.worker.start();
  if (auto paired = parts_.files.tiers().pair(); !paired) return paired;
  Locked locked = parts_.port.lock();
  parts_.lifetime.set_opened(locked);
  parts_.memory.submit_limits(locked);  // for what has failed by now
  parts_.recovery.register_recovered(locked);
  parts_.files.empty().send(locked);
  locked.unlock();
  if (auto forgotten = forget_gone(); !forgotten) return forgotten;
  parts_.files.tiers().warn_of_damage();
  if (auto started = leases_.start(); !started) return started;
  parts_.setup.log.info("open: " + parts_.setup.settings);
  return {};
}

// What others deleted may be written again from now on: first no copy of it can come back, then nothing tells the next
// opening of it, which could take what is written again for that.
Result<void> Engine::forget_gone() {
  constexpr Seconds kLimit(60);
  if (!parts_.files.persistent() || parts_.setup.readonly) return {};
  const auto by_others = [](const storage::Gone& one) { return one.body == planner::RecordChoice::kOthers; };
  const auto told = [&](const auto& tier) { return std::ranges::any_of(tier->persistent()->gone(), by_others); };
  if (std::ranges::none_of(parts_.files.tiers(), told)) return {};
  if (!histories_.wait_for_drops(kLimit, {}))
    return Error{Errc::timed_out, "versions whose files somebody deleted could not be dropped from " +
                                      parts_.setup.directory.string() + " within 60 s: the disk does not answer"};
  for (const auto& tier : parts_.files.tiers())
    if (auto forgotten = tier->persistent()->forget_gone(); !forgotten) return forgotten;
  return {};
}

Result<void> Engine::close(const Interrupt& interrupted, const std::optional<Durability>& level) {
  if (auto error = parts_.lifetime.forked()) return *error;
  if (level)
    if (auto known = parts_.waits.check_durability(name_of(*level)); !known) return known;
  const Durability own = parts_.setup.durability == Durability::node ? Durability::storage : parts_.setup.durability;
  const Durability awaited = level.value_or(own);
  const planner::Time until =
      parts_.setup.close_timeout ? later(parts_.port.now(), *parts_.setup.close_timeout) : planner::kNever;
  std::shared_ptr<Attached> attached;  // not destroyed with the mutex held
  Result<void> ended;
  if (!suspender_.settle([&] { return parts_.port.now() >= until || (interrupted && interrupted()); }) &&
      parts_.port.now() < until)
    return Error{Errc::timed_out, "closing the store was interrupted: it is open still, and being suspended"};
  Locked locked = parts_.port.lock();
  for (;;) {
    attached = attached_;
    if (attached) {
      locked.unlock();
      bool left = false;  // by the caller, not by the time limit
      ended =
          attached->end([&] { return (left = left || (interrupted && interrupted())) || parts_.port.now() >= until; });
      if (left && !ended) return ended;
      locked.lock();
    }
    if (auto done = parts_.lifetime.begin_closing(locked, interrupted)) return *done;
    if (attached == attached_) break;
    parts_.lifetime.stop_closing(locked);  // another one came meanwhile
    locked.unlock();
    attached.reset();
    locked.lock();
  }
  bool stop = false;
  Interrupt watched;
  const planner::Closing closing(parts_.files.tiers().size() > 1, awaited == Durability::shared,
                                 parts_.setup.close_timeout ? std::optional(until) : std::nullopt);
  if (interrupted || closing.may_give_up())
    watched = [&] {
      stop = stop || (interrupted && interrupted());
      return stop || closing.gives_up(parts_.files.trouble().silent());
    };
  Result<void> result;
  try {
    result = parts_.waits.drain(locked, name_of(awaited), until, watched);  // an ephemeral store drops what is pending
  } catch (...) {  // it can be closed again, and does not drain then if it is poisoned
    parts_.lifetime.stop_closing(locked);
    throw;
  }
  if (stop) {  // it stays open: pending writes go on, and the next close waits for them
    parts_.lifetime.stop_closing(locked);
    return Error{Errc::timed_out, "closing the store was interrupted: it is open still" +
                                      (result ? std::string() : "; " + result.error().message)};
  }
  if (result && !ended) result = ended;
  const OnFilesDurable act = result ? on_files_durable_ : nullptr;
  locked.unlock();
  if (act != nullptr) act(*this, {});
  suspender_.stop();
  locked.lock();
  parts_.lifetime.set_closed(locked);
  attached_.reset();
  parts_.queues.clear(locked);
  parts_.dispatcher.wake_everyone(locked);
  parts_.files.pool().leave(locked);
  const planner::Time limit = closing.limit(parts_.port.now(), parts_.files.trouble().silent());
  if (!parts_.lifetime.await(locked, limit, [&] { return parts_.lifetime.idle(locked); }))
    return leave_stuck(locked, result);
  parts_.files.drop_unreferenced(locked);
  locked.unlock();
  leases_.stop_borrowing();
  parts_.memory.stop();
  parts_.pump.join();
  parts_.worker.join();
  parts_.queues.stop();
  const bool stopped = parts_.files.stop(until, limit);
  locked.lock();
  if (!stopped) return leave_stuck(locked, result);
  parts_.calls.end_all(locked);
  parts_.hand_backs.clear(locked);
  parts_.streams.destroy(locked);  // their memory goes
  if (const Result<void> logged = parts_.port.end_log(locked); result) result = logged;
  parts_.memory.free(locked);
  parts_.lifetime.set_ended(locked);
  locked.unlock();
  if (parts_.setup.pool)
    parts_.setup.pool->memory.reset();  // leaves the node's pool, unless the application has memory of it
  leases_.forget_lenders();
  const planner::Time left = std::clamp<planner::Time>(until - parts_.port.now(), 0, planner::kRecallAtClose);
  const auto returned = leases_.stop_lending(std::chrono::nanoseconds(left), interrupted);
  if (result) result = returned;
  return result;
}

Result<std::string> Engine::suspension_level(const std::optional<std::string>& level) const {
  if (parts_.lifetime.forked()) return *parts_.lifetime.forked();
  if (parts_.setup.readonly) return readonly_error(parts_.setup);
  if (parts_.setup.durability == Durability::ephemeral)
    return Error{Errc::unsupported,
                 "an ephemeral store outlives no process: suspend_on needs one that was opened with a durability"};
  if (parts_.setup.veloc)
    return Error{Errc::unsupported,
                 "suspend_on is not supported with veloc_rank: its mark has no place among VELOC's files"};
  std::string chosen = level.value_or(std::string(name_of(parts_.setup.durability)));
  if (auto known = parts_.waits.check_durability(chosen); !known) return known.error();
  return chosen;
}

Result<void> Engine::drain(std::string_view level, planner::Time until, const Interrupt& interrupted) {
  if (const auto attached = this->attached()) {
    std::optional<Seconds> left;
    if (until != planner::kNever) left = Seconds(static_cast<double>(std::max<planner::Time>(0, until - now())) * 1e-9);
    if (auto settled = attached->settle({}, left, interrupted); !settled) return settled;
  }
  Locked locked = parts_.port.lock();
  if (parts_.lifetime.closed(locked)) return parts_.lifetime.closed_error();
  return parts_.waits.drain(locked, level, until, interrupted);
}

void Engine::log_suspension(const Result<void>& done) const {
  if (done)
    parts_.setup.log.info("suspended: what was written is durable");
  else
    parts_.setup.log.warning("not suspended: " + done.error().message);
}

Result<void> Engine::lend(std::uint64_t bytes, Seconds within, const Interrupt& interrupted) {
  if (auto error = parts_.lifetime.forked()) return *error;
  if (auto possible = options::check_offer("bytes", bytes); !possible) return possible;
  return leases_.offer(bytes, std::chrono::nanoseconds(nanoseconds(within)), interrupted);
}

Result<std::shared_ptr<Attached>> Engine::attach(std::shared_ptr<Attached> attached) {
  if (auto error = parts_.lifetime.forked()) return *error;
  const Locked locked = parts_.port.lock();
  if (parts_.lifetime.closed(locked) || parts_.lifetime.closing(locked)) return parts_.lifetime.closed_error();
  if (!attached_) attached_ = std::move(attached);
  attaches_ = true;
  return attached_;
}

std::shared_ptr<Attached> Engine::attached() {
  if (!attaches_ || parts_.lifetime.forked()) return {};
  const Locked locked = parts_.port.lock();
  return attached_;
}

// The store's files do not answer, and may never: nothing that they still use is freed.
Result<void> Engine::leave_stuck(Locked& locked, const Result<void>& why) {
  parts_.calls.end_all(locked);
  parts_.hand_backs.clear(locked);
  if (parts_.files.tiers().size() > 1) return leave_shared_stuck(locked, why);
  if (!why) return parts_.lifetime.set_stuck(locked, why.error());
  return parts_.lifetime.set_stuck(
      locked, {Errc::timed_out, "the time limit passed before what is under way in " + parts_.setup.directory.string() +
                                    " had ended: its files have not answered yet"});
}

// The promise of the store's level may have been kept; the next process sends the rest.
Result<void> Engine::leave_shared_stuck(Locked& locked, const Result<void>& why) {
  const std::string missing = parts_.files.missing_below(locked);
  const std::string text = "closing the store: the shared directory " +
                           parts_.files.tiers().slowest().directory().string() + " does not answer" +
                           (missing.empty() ? "" : ", and " + missing + " may not be there") + "; what is in " +
                           parts_.setup.directory.string() + " is sent by the next process that opens both";
  const Result<void> stuck = parts_.lifetime.set_stuck(locked, {Errc::timed_out, text});
  if (!why) return stuck;
  locked.unlock();
  parts_.setup.log.warning(text);
  return {};
}

Engine::~Engine() {
  try {
    static_cast<void>(close());
  } catch (const std::exception&) {  // its planner's contract broke while it drained
    static_cast<void>(close());
  }
  Locked locked = parts_.port.lock();
  parts_.streams.destroy(locked);  // of calls that met the closing
}

void Engine::poke() {
  const Locked locked = parts_.port.lock();
  parts_.pump.wake(locked);
}

std::uint64_t Engine::pump_rounds() {
  const Locked locked = parts_.port.lock();
  return parts_.pump.rounds(locked);
}

}  // namespace ebb::store
