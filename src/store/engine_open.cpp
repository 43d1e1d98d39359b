// How an engine begins and ends.
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include "base/own_process.hpp"
#include "base/wait_points.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

Engine::Engine(Seams seams, EngineSetup setup)
    : seams_(std::move(seams)),
      setup_(std::move(setup)),
      port_(seams_.clock, setup_.machine, *this),
      machinery_(std::make_unique<Machinery>()),
      lifetime_(port_),
      streams_(seams_.device, setup_.log),
      statistics_(port_),
      catalog_(port_, setup_.durability != Durability::ephemeral || setup_.readonly) {}

Result<std::shared_ptr<Engine>> Engine::open(Seams seams, EngineSetup setup) {
  std::shared_ptr<Engine> engine(new Engine(std::move(seams), std::move(setup)), InOwnProcess{});
  try {
    if (auto started = engine->start(); !started) return started.error();
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return Error{Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
  }
  return engine;
}

Result<void> Engine::start() {
  const policy::Machine& machine = port_.machine();
  setup_.machine = machine;
  auto tiers = Tiers::create(seams_, setup_, [this] { memory_changed(); });
  if (!tiers) return tiers.error();
  machinery_->tiers = std::move(*tiers);
  machinery_->digests = std::make_unique<DigestPlaces>(seams_.device);
  const auto done = [this](transfer::Token token, const Result<void>& result) { on_done(token, result); };

  unsigned streams = 0;
  for (const policy::LinkSpec& link : machine.links) {
    Lane& lane = lanes_.emplace_back();
    const bool own = link.from == policy::kApplication || link.to == policy::kApplication;
    const bool file = policy::on_file(machine, link.from) || policy::on_file(machine, link.to);
    if (!own && !file) lane.stream = static_cast<int>(streams++);
  }
  auto copies = transfer::CopyEngine::create(*seams_.device, streams, done);
  if (!copies) return copies.error();
  machinery_->copies = std::move(*copies);

  for (const policy::TierSpec& tier : machine.tiers) {
    if (tier.medium != policy::Medium::file) continue;
    if (machinery_->storage) throw std::logic_error("more than one file tier");
    if (auto opened = open_storage(done); !opened) return opened;
    setup_.settings += ", " + machinery_->storage->describe();
  }
  if (setup_.event_log) {
    auto log = EventLog::create(*seams_.files, *setup_.event_log);
    if (!log) return log.error();
    port_.begin_log(std::move(*log));
  }
  machinery_->pump_thread = std::thread([this] { run_pump(); });
  machinery_->worker_thread = std::thread([this] { run_worker(); });
  Locked locked = port_.lock();
  lifetime_.set_opened(locked);
  tell_limits(locked);  // what has failed to come by now, nobody was told of
  if (machinery_->kept != nullptr) adopt(locked, machinery_->kept->found());
  locked.unlock();
  if (machinery_->kept != nullptr) warn_of(machinery_->kept->damages());
  setup_.log.info("open: " + setup_.settings);
  return {};
}

Result<void> Engine::close(const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (auto done = lifetime_.begin_closing(locked, interrupted)) return *done;
  const policy::Time until = setup_.close_timeout ? later(port_.now(), *setup_.close_timeout) : policy::kNever;
  bool stop = false;
  Interrupt watched;
  if (interrupted) watched = [&] { return stop = stop || interrupted(); };
  Result<void> result;
  try {
    result = drain(locked, until, watched);  // an ephemeral store drops what is pending
  } catch (...) {                            // it can be closed again, and does not drain then if it is broken
    lifetime_.stop_closing(locked);
    throw;
  }
  if (stop) {  // it stays open: what is pending goes on, and whoever closes next waits for that
    lifetime_.stop_closing(locked);
    return Error{Errc::timed_out, "closing the store was interrupted: it is open still" +
                                      (result ? std::string() : "; " + result.error().message)};
  }
  lifetime_.set_closed(locked);
  for (Lane& lane : lanes_) lane.queue.clear();
  wake_everyone(locked);
  if (!lifetime_.await(locked, until, [&] { return lifetime_.idle(locked); })) return leave_open(locked, result);
  drop_last(locked);
  locked.unlock();
  if (machinery_->tiers) machinery_->tiers->stop();
  if (machinery_->pump_thread.joinable()) EBB_WAIT(pump_joined, machinery_->pump_thread.join());
  if (machinery_->worker_thread.joinable()) EBB_WAIT(worker_joined, machinery_->worker_thread.join());
  machinery_->copies.reset();
  const bool stopped = stop_storage(until);
  locked.lock();
  if (!stopped) return leave_open(locked, result);
  end_futures(locked);
  streams_.destroy(locked);  // their memory goes
  if (const Result<void> logged = port_.end_log(locked); result) result = logged;
  if (machinery_->tiers) machinery_->tiers->keep_what_is_lent();
  machinery_->tiers.reset();
  lifetime_.set_ended(locked);
  return result;
}

// Files that do not answer, and may never: nothing that they still use is freed.
Result<void> Engine::leave_open(const Locked& locked, const Result<void>& why) {
  end_futures(locked);
  if (!why) return lifetime_.set_stuck(locked, why.error());
  return lifetime_.set_stuck(
      locked, {Errc::timed_out, "the time limit passed before what is under way in " + setup_.directory.string() +
                                    " had ended: its files have not answered yet"});
}

void Engine::end_futures(const Locked& locked) {
  for (auto& [id, request] : background_) {
    streams_.put(locked, request->own);
    requests_.erase(id);
    if (!request->waitable) continue;
    request->waitable->ended = true;
    request->waitable->error = lifetime_.closed_error();
  }
  background_.clear();
  handed_back_.clear();
  machinery_->ended.notify_all();
}

// What was dropped while it was being written: its end came too late for the planner to say that its room is free.
void Engine::drop_last(const Locked& locked) {
  if (machinery_->kept == nullptr) return;
  for (Record& record : catalog_.records(locked)) {
    if (record.object.id != 0 && !record.object.leave && !catalog_.live(locked, record)) {
      machinery_->kept->drop(record.object.id);
    }
    record.object = {};
  }
}

Engine::~Engine() {
  try {
    static_cast<void>(close());
  } catch (const std::exception&) {  // it broke while it drained
    static_cast<void>(close());
  }
  Locked locked = port_.lock();
  streams_.destroy(locked);  // of calls that met the closing
}

Error Engine::readonly_error() const {
  return {Errc::unsupported,
          "the store in " + setup_.directory.string() + " was opened with readonly: nothing can be written"};
}

void Engine::poke() {
  Locked locked = port_.lock();
  wake_pump(locked);
}

std::uint64_t Engine::pump_rounds() {
  Locked locked = port_.lock();
  return pump_rounds_;
}

Engine::Entered::Entered(Engine& engine, const Locked& locked, Request& request)
    : engine_(engine), locked_(locked), request_(request) {
  request.id = engine.next_request_++;
  request.started = engine.port_.now();
  engine.requests_.emplace(request.id, &request);
}

Engine::Entered::~Entered() {
  if (detached_) return;
  engine_.streams_.put(locked_, request_.own);
  engine_.requests_.erase(request_.id);
}

void Engine::Entered::detach(const Locked& /*locked*/, std::shared_ptr<Request> request,
                             std::shared_ptr<Waitable> waitable) {
  detached_ = true;
  request->background = true;
  request->waitable = std::move(waitable);
  engine_.background_.emplace(request_.id, std::move(request));
}

}  // namespace ebb::runtime
