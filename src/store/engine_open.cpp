// How a store is opened and closed.
#include <algorithm>
#include <system_error>

#include "base/own_process.hpp"
#include "node/pool_header.hpp"
#include "store/engine.hpp"

namespace ebb::store {
namespace {

constexpr std::chrono::nanoseconds kRecall = std::chrono::seconds(10);  // what was lent, when the store closes

}  // namespace

Engine::Engine(options::Seams seams, options::EngineSetup setup)
    : seams_(std::move(seams)),
      setup_(std::move(setup)),
      port_(seams_.clock, setup_.machine, dispatcher_),
      lifetime_(port_),
      streams_(seams_.device, setup_.log),
      statistics_(port_),
      catalog_(port_, setup_.durability != Durability::ephemeral || setup_.readonly),
      memory_(port_, lifetime_, catalog_),
      files_(port_, lifetime_, catalog_, calls_, seams_, setup_),
      recovery_(port_, lifetime_, catalog_, files_, setup_),
      verifier_(port_, lifetime_, catalog_, streams_, memory_, files_, setup_, seams_.device),
      queues_(port_, lifetime_, catalog_, memory_, files_, verifier_, calls_, hand_backs_),
      copies_(port_, lifetime_, streams_, memory_, queues_, calls_, verifier_, catalog_),
      hand_backs_(port_, lifetime_, catalog_, streams_),
      calls_(port_, lifetime_, catalog_, streams_, statistics_, setup_.verify_all),
      callers_(port_, lifetime_, memory_, calls_, queues_, copies_),
      pump_(port_, lifetime_, queues_, timers_),
      worker_(port_, lifetime_, queues_, copies_, calls_, verifier_),
      dispatcher_(port_, lifetime_, catalog_, memory_, files_, queues_, calls_, pump_),
      waits_(port_, lifetime_, catalog_, statistics_, files_, calls_, callers_, timers_, setup_),
      lending_(port_, lifetime_, memory_, queues_, calls_),
      neighbours_(lending_, seams_, setup_),
      suspender_(*this) {}

Result<std::shared_ptr<Engine>> Engine::open(options::Seams seams, options::EngineSetup setup) {
  if (setup.pool) {
    const auto shape = node::choose_shape(setup.pool->budget, setup.pool->chunk_bytes, setup.local_ranks);
    if (!shape) return shape.error();
    for (planner::TierSpec& tier : setup.machine.tiers)
      if (tier.medium == planner::Medium::host) tier.capacity = node::cache_share(*shape, setup.local_ranks);
  }
  setup.machine.releases_later = !setup.machine.ephemeral &&
                                 setup.machine.tiers.back().medium == planner::Medium::file && !setup.readonly &&
                                 !setup.pool;
  std::shared_ptr<Engine> engine(new Engine(std::move(seams), std::move(setup)), base::InOwnProcess{});
  try {
    if (auto started = engine->start(); !started) return started.error();
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return Error{Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
  }
  return engine;
}

Result<void> Engine::start() {
  setup_.machine = port_.machine();
  const auto memory_log = setup_.event_log ? std::make_shared<trace::ProvisionLog>() : nullptr;
  const Persistence::Reports reports{
      .done = [this](transfer::Token token, const Result<void>& result) { queues_.on_done(token, result); },
      .carried = [this](transfer::Token token) { queues_.on_carried(token); }};
  if (auto joined = files_.join_pool(reports); !joined) return joined;
  if (auto made = memory_.create(seams_, setup_, [this] { queues_.on_memory(); }, memory_log); !made) return made;
  if (auto made = queues_.create(seams_); !made) return made;
  if (auto opened = files_.open(reports); !opened) return opened;
  if (setup_.event_log) {
    auto log = trace::EventLog::create(*seams_.files, *setup_.event_log);
    if (!log) return log.error();
    port_.begin_log(std::move(*log), memory_log);
  }
  pump_.start();
  worker_.start();
  Locked locked = port_.lock();
  lifetime_.set_opened(locked);
  memory_.submit_limits(locked);  // for what has failed by now
  recovery_.register_recovered(locked);
  locked.unlock();
  files_.warn_of_damage();
  if (files_.pool_memory() != nullptr && files_.pool_memory()->loan_bytes() > 0) {
    const auto& tiers = setup_.machine.tiers;
    const auto host = std::ranges::find(tiers, planner::Medium::host, &planner::TierSpec::medium);
    const auto tier = static_cast<planner::TierIndex>(host - tiers.begin());
    borrower_ = std::make_unique<Borrower>(*files_.pool_memory(), lending_, *seams_.device_of(host->node), tier,
                                           /*pinned=*/true, "memory of the node's pool", setup_.log);
    borrower_->start();
  }
  if (auto started = neighbours_.start(); !started) return started;
  setup_.log.info("open: " + setup_.settings);
  return {};
}

Result<void> Engine::close(const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  const planner::Time until = setup_.close_timeout ? later(port_.now(), *setup_.close_timeout) : planner::kNever;
  std::shared_ptr<Attached> attached;  // not destroyed with the mutex held
  Result<void> ended;
  if (!suspender_.settle([&] { return port_.now() >= until || (interrupted && interrupted()); }) && port_.now() < until)
    return Error{Errc::timed_out, "closing the store was interrupted: it is open still, and being suspended"};
  Locked locked = port_.lock();
  for (;;) {
    attached = attached_;
    if (attached) {
      locked.unlock();
      bool left = false;  // by the caller, not by the time limit
      ended = attached->end([&] { return (left = left || (interrupted && interrupted())) || port_.now() >= until; });
      if (left && !ended) return ended;
      locked.lock();
    }
    if (auto done = lifetime_.begin_closing(locked, interrupted)) return *done;
    if (attached == attached_) break;
    lifetime_.stop_closing(locked);  // another one came meanwhile
    locked.unlock();
    attached.reset();
    locked.lock();
  }
  bool stop = false;
  Interrupt watched;
  if (interrupted) watched = [&] { return stop = stop || interrupted(); };
  Result<void> result;
  try {
    const Durability all = setup_.durability == Durability::node ? Durability::storage : setup_.durability;
    result = waits_.drain(locked, options::name_of(all), until, watched);  // an ephemeral store drops what is pending
  } catch (...) {  // it can be closed again, and does not drain then if it is poisoned
    lifetime_.stop_closing(locked);
    throw;
  }
  if (stop) {  // it stays open: pending writes go on, and the next close waits for them
    lifetime_.stop_closing(locked);
    return Error{Errc::timed_out, "closing the store was interrupted: it is open still" +
                                      (result ? std::string() : "; " + result.error().message)};
  }
  if (result && !ended) result = ended;
  const OnFilesDurable act = result ? on_files_durable_ : nullptr;
  locked.unlock();
  if (act != nullptr) act(*this, {});
  suspender_.stop();
  locked.lock();
  lifetime_.set_closed(locked);
  attached_.reset();
  queues_.clear(locked);
  dispatcher_.wake_everyone(locked);
  files_.leave(locked);
  if (!lifetime_.await(locked, until, [&] { return lifetime_.idle(locked); })) return leave_stuck(locked, result);
  files_.drop_unreferenced(locked);
  locked.unlock();
  if (borrower_) borrower_->stop();
  neighbours_.stop_borrowing();
  memory_.stop();
  pump_.join();
  worker_.join();
  queues_.stop();
  const bool stopped = files_.stop(until);
  locked.lock();
  if (!stopped) return leave_stuck(locked, result);
  calls_.end_all(locked);
  hand_backs_.clear(locked);
  streams_.destroy(locked);  // their memory goes
  if (const Result<void> logged = port_.end_log(locked); result) result = logged;
  memory_.free(locked);
  lifetime_.set_ended(locked);
  locked.unlock();
  if (setup_.pool) setup_.pool->memory.reset();  // leaves the node's pool, unless the application has memory of it
  neighbours_.forget_lenders();
  const planner::Time left = std::clamp<planner::Time>(until - port_.now(), 0, kRecall.count());
  const auto returned = neighbours_.stop_lending(std::chrono::nanoseconds(left), interrupted);
  if (result) result = returned;
  return result;
}

Result<std::string> Engine::suspension_level(const std::optional<std::string>& level) const {
  if (lifetime_.forked()) return *lifetime_.forked();
  if (setup_.readonly) return readonly_error();
  if (setup_.durability == Durability::ephemeral)
    return Error{Errc::unsupported,
                 "an ephemeral store outlives no process: suspend_on needs one that was opened with a durability"};
  std::string chosen = level.value_or(std::string(options::name_of(setup_.durability)));
  if (auto known = waits_.check_durability(chosen); !known) return known.error();
  return chosen;
}

Result<void> Engine::drain(std::string_view level, planner::Time until, const Interrupt& interrupted) {
  if (const auto attached = this->attached()) {
    std::optional<Seconds> left;
    if (until != planner::kNever) left = Seconds(static_cast<double>(std::max<planner::Time>(0, until - now())) * 1e-9);
    if (auto settled = attached->settle({}, left, interrupted); !settled) return settled;
  }
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  return waits_.drain(locked, level, until, interrupted);
}

void Engine::log_suspension(const Result<void>& done) const {
  if (done)
    setup_.log.info("suspended: what was written is durable");
  else
    setup_.log.warning("not suspended: " + done.error().message);
}

Result<void> Engine::lend(std::uint64_t bytes, Seconds within, const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  if (auto possible = options::check_offer("bytes", bytes); !possible) return possible;
  return neighbours_.lend(bytes, std::chrono::nanoseconds(nanoseconds(within)), interrupted);
}

Result<std::shared_ptr<Attached>> Engine::attach(std::shared_ptr<Attached> attached) {
  if (auto error = lifetime_.forked()) return *error;
  const Locked locked = port_.lock();
  if (lifetime_.closed(locked) || lifetime_.closing(locked)) return lifetime_.closed_error();
  if (!attached_) attached_ = std::move(attached);
  return attached_;
}

std::shared_ptr<Attached> Engine::attached() {
  if (lifetime_.forked()) return {};
  const Locked locked = port_.lock();
  return attached_;
}

// Its files do not answer, and may never: nothing that they still use is freed.
Result<void> Engine::leave_stuck(const Locked& locked, const Result<void>& why) {
  calls_.end_all(locked);
  hand_backs_.clear(locked);
  if (!why) return lifetime_.set_stuck(locked, why.error());
  return lifetime_.set_stuck(
      locked, {Errc::timed_out, "the time limit passed before what is under way in " + setup_.directory.string() +
                                    " had ended: its files have not answered yet"});
}

Engine::~Engine() {
  try {
    static_cast<void>(close());
  } catch (const std::exception&) {  // its planner's contract broke while it drained
    static_cast<void>(close());
  }
  Locked locked = port_.lock();
  streams_.destroy(locked);  // of calls that met the closing
}

void Engine::poke() {
  const Locked locked = port_.lock();
  pump_.wake(locked);
}

std::uint64_t Engine::pump_rounds() {
  const Locked locked = port_.lock();
  return pump_.rounds(locked);
}

}  // namespace ebb::store
