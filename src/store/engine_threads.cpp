// Which thread carries out what, and every place where one stands still.
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/engine.hpp"
#include "store/tokens.hpp"

namespace ebb::runtime {
namespace {

// A clock of a test's own may stand: the pump thread then sleeps on until poke().
constexpr policy::Time kLongestSleep = 3600ll * 1000 * 1000 * 1000;
// Waking a sleeping thread costs a caller several times what all its bookkeeping does, and the one woken may take its
// processor. So after work the pump thread naps for some 30 ms, looking for more by itself, before it sleeps.
constexpr policy::Time kShortestNap = 100'000, kLongestNap = 250'000;
constexpr int kNaps = 128;

}  // namespace

// --- the caller's thread -------------------------------------------------------------------------------------------

// Stays until the planner has answered, every copy is on the application's stream, the store is closed or the planner's
// contract is broken (which is thrown).
void Engine::serve(Locked& locked, Request& request, const Timer* timer, const Interrupt& interrupted) {
  bool cancelled = false, stop = false;
  const auto stopped = [&] { return !cancelled && (stop || request.refused || (timer != nullptr && timer->fired)); };
  const auto ready = [&] {
    return has_work(locked, request) || request.answered || lifetime_.closed(locked) || port_.poisoned(locked) ||
           stopped();
  };
  while (!request.answered && !lifetime_.closed(locked) && !all_enqueued(request)) {
    port_.throw_if_poisoned(locked);
    if (has_work(locked, request)) {
      copy_own(locked, request);
      continue;
    }
    pump(locked);
    if (has_work(locked, request) || request.answered) continue;
    if (request.stream && !request.asks_ready) {
      ask_ready(locked, request);
      continue;
    }
    if (stopped()) {
      cancelled = true;
      port_.submit(locked, request.history, policy::event::Cancel{request.id});
      if (request.copies && !request.answered && request.next == request.commands.size()) {
        // Transfers between tiers may still be under way in its name, perhaps for ever; none of them knows the caller's
        // memory, so that the caller need not stay for them.
        abandoned_.insert(request.id);
        request.answer.reason = policy::Reason::cancelled;
        request.answered = true;
      }
      // Those for which there is no memory yet it never begins.
      while (!request.answered && request.next < request.commands.size() && !usable(request.commands[request.next])) {
        tell_end(locked, request.commands[request.next++].id,
                 Error{Errc::timed_out, "its memory did not come in time"});
      }
      continue;
    }
    if (wants_pump(locked)) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(request_answered, request.changed.wait(locked.native(), ready));
      continue;
    }
    bool woken = false;
    EBB_WAIT(request_polled, woken = request.changed.wait_for(locked.native(), kInterruptEvery, ready));
    if (!woken) stop = asked_to_stop(locked, interrupted) || stop;
  }
}

// --- handing over --------------------------------------------------------------------------------------------------

// Gives the engines what the planner has ordered. A lane that another thread is at is left to that thread.
void Engine::pump(Locked& locked) {
  for (std::size_t link = 0; link < lanes_.size();) {
    Lane& lane = lanes_[link];
    if (lifetime_.closed(locked) || port_.poisoned(locked) || lane.pumping || lane.queue.empty() ||
        !usable(lane.queue.front())) {
      ++link;
      continue;
    }
    std::vector<Handover> orders;
    for (; !lane.queue.empty() && usable(lane.queue.front()); lane.queue.pop_front()) {
      const policy::Command& command = lane.queue.front();
      const bool put =
          command.to.at.kind == policy::Endpoint::tier &&
          port_.machine().tiers[static_cast<std::size_t>(command.to.at.index)].medium == policy::Medium::file;
      FileObject object;
      std::shared_ptr<const storage::Description> description;
      if (lane.stream < 0) {
        Record* const record = catalog_.find(locked, command.checkpoint);
        const bool added = record != nullptr && catalog_.name_object(locked, *record);
        if (record == nullptr || (added && !put)) {
          const std::string broken = "a checkpoint was read from a file that it was never written to";
          port_.poison(static_cast<const Locked&>(locked), broken);
          throw std::logic_error(broken);
        }
        if (added) {
          description = description_of(locked, command.checkpoint);
          if (description) catalog_.set_pending(locked, *record);
        }
        object = record->object;
      }
      begin_moving(locked, command, lane.stream >= 0);
      std::shared_ptr<Comparison> comparison;
      // Before anything of it is used, and once more when the last of it has been read.
      if (command.offset == 0 || command.offset + command.length == command.total) {
        if (auto check = check_of(locked, command))
          comparison = std::make_shared<Comparison>(Comparison{std::move(check), {}});
      }
      moving_.at(command.id).comparison = comparison;
      orders.push_back(
          {command, object.id, lane.stream, put, std::move(comparison), object.refused, std::move(description)});
    }
    lane.pumping = true;
    lifetime_.begin(locked, orders.size() + 1);
    locked.native().unlock();
    std::vector<std::pair<policy::CommandId, Error>> refused;
    std::optional<std::string> broken;
    std::map<storage::ObjectId, Error> not_begun;
    for (Handover& order : orders) {
      try {
        if (const auto found = not_begun.find(order.object); found != not_begun.end()) order.refused = found->second;
        const Result<void> taken = hand_over(order);
        if (!taken) refused.emplace_back(order.command.id, taken.error());
        if (!taken && order.description) not_begun.emplace(order.object, taken.error());
      } catch (const std::exception& error) {  // the planner asked for what cannot be, or there is no memory to do it
        refused.emplace_back(order.command.id, Error{Errc::io_error, error.what()});
        broken = error.what();
      }
    }
    locked.native().lock();
    if (broken) port_.poison(static_cast<const Locked&>(locked), *broken);
    lifetime_.end(locked, refused.size() + 1);
    lane.pumping = false;
    for (const Handover& order : orders) sent(locked, order.command.id);
    if (!refused.empty() && !lifetime_.closed(locked) && !port_.poisoned(locked)) tell_limits(locked);
    for (const Handover& order : orders) {
      const auto failed = not_begun.find(order.object);
      if (failed == not_begun.end()) continue;
      Record* const record = catalog_.find(locked, order.command.checkpoint);
      if (record != nullptr && record->object.id == order.object) record->object.refused = failed->second;
    }
    for (const auto& [command, error] : refused) {
      if (!lifetime_.closed(locked) && !port_.poisoned(locked)) tell_end(locked, command, error);
    }
    link = 0;  // what was refused may have ordered anything
  }
}

Result<void> Engine::hand_over(const Handover& order) {
  const Tiers& tiers = *machinery_->tiers;
  const policy::Command& command = order.command;
  if (never(command)) return no_memory_error(command);
  if (order.stream >= 0) {
    std::vector<transfer::Part> parts;
    tiers.for_each_part(command.from, command.to, command.length, [&](std::uint64_t offset, std::uint64_t bytes) {
      parts.push_back({tiers.at(command.to) + offset, tiers.at(command.from) + offset, bytes});
    });
    if (!order.comparison) {
      machinery_->copies->submit(static_cast<unsigned>(order.stream), command.id, parts);
      return {};
    }
    auto place = machinery_->digests->take();
    if (!place) return place.error();
    order.comparison->place = std::move(*place);
    const Check& check = *order.comparison->check;
    machinery_->copies->submit(static_cast<unsigned>(order.stream), command.id, parts,
                               transfer::Digested{check.data, check.bytes, order.comparison->place.get()});
    return {};
  }
  if (order.refused) return *order.refused;
  if (order.put && order.comparison) {  // from ordinary memory
    if (auto same = compare(*order.comparison->check, platform::kInlineStream); !same) return same;
  }
  if (order.description) {
    if (auto begun = machinery_->kept->begin(order.object, order.description); !begun) return begun;
  }
  if (order.put) {
    return machinery_->storage->put(command.id, order.object, command.total, command.to.offset, tiers.at(command.from),
                                    command.length);
  }
  return machinery_->storage->get(command.id, order.object, command.from.offset, tiers.at(command.to), command.length);
}

// A command's end, for the planner.
void Engine::tell_end(const Locked& locked, policy::CommandId command, const Result<void>& result) {
  policy::event::Failed failed{.command = command};
  sent(locked, command);
  if (!result) {
    const auto found = moving_.find(command);
    const bool reads = found != moving_.end() && reads_file(found->second.command);
    const Errc code = result.error().code;
    if (code == (reads ? Errc::out_of_memory : Errc::no_space)) failed.cause = policy::event::Failed::no_room;
    if (reads && (code == Errc::damaged || code == Errc::unknown_version)) failed.cause = policy::event::Failed::source;
    if (found != moving_.end() && found->second.comparison && code == Errc::damaged) {
      Record* const record = catalog_.find(locked, found->second.command.checkpoint);
      if (record != nullptr) {
        record->written_to = true;
        failed.cause = policy::event::Failed::source;
      }
    }
  }
  end_moving(locked, command, result);
  if (result)
    port_.submit(locked, 0, policy::event::Finished{command});
  else
    port_.submit(locked, 0, failed);
}

bool Engine::reads_file(const policy::Command& command) const {
  return command.from.at.kind == policy::Endpoint::tier &&
         port_.machine().tiers[static_cast<std::size_t>(command.from.at.index)].medium == policy::Medium::file;
}

// On an engine's thread.
void Engine::on_done(transfer::Token token, const Result<void>& result) {
  Locked locked = port_.lock();
  lifetime_.end(locked);
  if (lifetime_.closed(locked)) return;
  try {
    if (is_stream(token))
      stream_ended(locked, token, result);
    else
      tell_end(locked, token, result ? compared(locked, token) : result);
    pump(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

// On the file engine's thread, as the end of a write: the disk has its next work at once, while this is checked.
void Engine::on_carried(transfer::Token token) {
  Locked locked = port_.lock();
  if (lifetime_.closed(locked) || port_.poisoned(locked)) return;
  try {
    port_.submit(locked, 0, policy::event::Carried{token});
    pump(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

// --- the pump thread: commands of calls that have returned, times, the event log -----------------------------------

bool Engine::unhanded(const Locked& locked) const {
  if (port_.poisoned(locked) || lifetime_.closed(locked)) return false;  // nothing is handed over any more
  for (const Lane& lane : lanes_) {
    if (!lane.pumping && !lane.queue.empty() && usable(lane.queue.front())) return true;
  }
  return false;
}

policy::Time Engine::due(const Locked& locked) const {
  if (port_.poisoned(locked)) return policy::kNever;
  return timers_.empty() ? port_.wakeup(locked) : std::min(port_.wakeup(locked), timers_.begin()->first);
}

// Whether the pump thread sleeps and must not; it is then to be notified.
bool Engine::wants_pump(const Locked& locked) {
  if (!pump_sleeps_) return false;
  const bool work = (!napping_ && unhanded(locked)) || port_.log_full(locked);
  if (!work && due(locked) >= armed_) return false;
  pump_sleeps_ = false;
  return true;
}

void Engine::wake_pump(const Locked& /*locked*/) {
  pump_sleeps_ = false;
  machinery_->pump.notify_one();
}

void Engine::run_timers(const Locked& locked) {
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first <= port_.now()) {
    Timer* const timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    fired = timer->fired = true;
    timer->wake.notify_all();
  }
  if (fired) machinery_->ended.notify_all();  // a wait for what becomes durable first stands on its request, then there
  if (port_.wakeup(locked) <= port_.now()) {
    port_.submit(locked, 0, policy::event::Tick{});
  }
}

void Engine::run_pump() {
  Locked locked = port_.lock();
  const auto awake = [&] { return !pump_sleeps_; };
  int naps = kNaps;  // since there was work
  policy::Time nap = kShortestNap;
  while (!lifetime_.closed(locked)) {
    ++pump_rounds_;
    if (unhanded(locked)) {
      naps = 0;
      nap = kShortestNap;
    }
    try {
      pump(locked);
      if (!port_.poisoned(locked)) run_timers(locked);
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
    if (port_.log_full(locked)) port_.write_log(locked);
    if (lifetime_.closed(locked) || unhanded(locked)) continue;
    armed_ = due(locked);
    const policy::Time time = port_.now();
    if (armed_ <= time) continue;
    napping_ = naps < kNaps;
    if (napping_) {
      armed_ = std::min(armed_, time + nap);
      ++naps;
      nap = std::min(2 * nap, kLongestNap);
    }
    pump_sleeps_ = true;
    if (armed_ == policy::kNever) {
      EBB_WAIT(pump_sleeps, machinery_->pump.wait(locked.native(), awake));
    } else {
      const std::chrono::nanoseconds sleep(std::min(armed_ - time, kLongestSleep));
      EBB_WAIT(pump_sleeps_until, machinery_->pump.wait_for(locked.native(), sleep, awake));
    }
    pump_sleeps_ = false;
  }
}

// --- the worker: copies of restore_async ---------------------------------------------------------------------------

void Engine::run_worker() {
  Locked locked = port_.lock();
  for (;;) {
    EBB_WAIT(worker_sleeps, machinery_->worker.wait(locked.native(), [&] {
      return lifetime_.closed(locked) || !worker_queue_.empty() || !checks_.empty();
    }));
    if (lifetime_.closed(locked)) return;
    if (!checks_.empty()) {
      try {
        const std::shared_ptr<Request> request = background_.at(checks_.front());
        checks_.pop_front();
        if (auto right = check_handed_out(locked, *request, request->pieces, true); !right)
          request->wrong = right.error();
        if (lifetime_.closed(locked)) return;  // its future is told so
        end_background(locked, *request);
      } catch (const std::exception& error) {
        port_.poison(locked, error);
      }
      continue;
    }
    const policy::RequestId id = worker_queue_.at(0);
    worker_queue_.pop_front();
    try {
      const std::shared_ptr<Request> request = background_.at(id);
      copy_own(locked, *request);
      pump(locked);
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
  }
}

void Engine::wake_everyone(const Locked& locked) {
  for (auto& [id, request] : requests_) request->changed.notify_all();
  machinery_->worker.notify_all();
  machinery_->ended.notify_all();
  lifetime_.wake(locked);
  wake_pump(locked);
}

// --- timers --------------------------------------------------------------------------------------------------------

Engine::Timer::Timer(Engine& engine, const Locked& /*locked*/, std::optional<Seconds> timeout,
                     std::condition_variable& wake_)
    : wake(wake_), engine_(engine) {
  if (!timeout) return;
  at_ = later(engine.port_.now(), *timeout);
  fired = *timeout <= Seconds(0);
  if (at_ != policy::kNever && !fired) engine_.timers_.emplace(at_, this);
}

Engine::Timer::~Timer() {
  if (!fired) engine_.timers_.erase({at_, this});
}

}  // namespace ebb::runtime
