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
void Engine::serve(Lock& lock, Request& request, const Timer* timer, const Interrupt& interrupted) {
  bool cancelled = false, stop = false;
  const auto stopped = [&] { return !cancelled && (stop || request.refused || (timer != nullptr && timer->fired)); };
  const auto ready = [&] { return has_work(request) || request.answered || closed_ || broken_ || stopped(); };
  while (!request.answered && !closed_ && !all_enqueued(request)) {
    if (broken_) throw std::logic_error(*broken_);
    if (has_work(request)) {
      copy_own(lock, request);
      continue;
    }
    pump(lock);
    if (has_work(request) || request.answered) continue;
    if (request.stream && !request.asks_ready) {
      ask_ready(lock, request);
      continue;
    }
    if (stopped()) {
      cancelled = true;
      feed(request.history, policy::event::Cancel{request.id});
      if (request.copies && !request.answered && request.next == request.commands.size()) {
        // Transfers between tiers may still be under way in its name, perhaps for ever; none of them knows the caller's
        // memory, so that the caller need not stay for them.
        abandoned_.insert(request.id);
        request.answer.reason = policy::Reason::cancelled;
        request.answered = true;
      }
      // Those for which there is no memory yet it never begins.
      while (!request.answered && request.next < request.commands.size() && !usable(request.commands[request.next])) {
        tell_end(request.commands[request.next++].id, Error{Errc::timed_out, "its memory did not come in time"});
      }
      continue;
    }
    if (wants_pump()) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(request_answered, request.changed.wait(lock.native(), ready));
      continue;
    }
    bool woken = false;
    EBB_WAIT(request_polled, woken = request.changed.wait_for(lock.native(), kInterruptEvery, ready));
    if (!woken) stop = asked_to_stop(lock, interrupted) || stop;
  }
}

// The mutex is given up meanwhile: this is the caller's code.
bool Engine::asked_to_stop(Lock& lock, const Interrupt& interrupted) {
  lock.unlock();
  const bool asked = [&]() noexcept { return interrupted(); }();
  lock.lock();
  return asked;
}

// On a thread that nobody waits for: whatever it was, the callers throw it.
void Engine::broke(Lock& lock, const std::exception& error) {
  if (!lock.native().owns_lock()) lock.lock();
  if (broken_) return;
  broken_ = error.what();
  wake_everyone();
}

// --- handing over --------------------------------------------------------------------------------------------------

// Gives the engines what the planner has ordered. A lane that another thread is at is left to that thread.
void Engine::pump(Lock& lock) {
  for (std::size_t link = 0; link < lanes_.size();) {
    Lane& lane = lanes_[link];
    if (closed_ || broken_ || lane.pumping || lane.queue.empty() || !usable(lane.queue.front())) {
      ++link;
      continue;
    }
    std::vector<Handover> orders;
    for (; !lane.queue.empty() && usable(lane.queue.front()); lane.queue.pop_front()) {
      const policy::Command& command = lane.queue.front();
      const bool put =
          command.to.at.kind == policy::Endpoint::tier &&
          planner_->machine().tiers[static_cast<std::size_t>(command.to.at.index)].medium == policy::Medium::file;
      Object object;
      std::shared_ptr<const storage::Description> description;
      if (lane.stream < 0) {
        // Objects are named anew each time a checkpoint comes to the tier, for a name is never used again.
        const auto [found, added] = objects_.try_emplace(key_of(command.checkpoint), Object{next_object_});
        if (added && !put) {
          broken_ = "a checkpoint was read from a file that it was never written to";
          wake_everyone();
          throw std::logic_error(*broken_);
        }
        if (added) {
          ++next_object_;
          description = description_of(command.checkpoint);
          if (description) keeping_.emplace(found->second.id, command.checkpoint);
        }
        object = found->second;
      }
      begin_moving(command, lane.stream >= 0);
      std::shared_ptr<Comparison> comparison;
      // Before anything of it is used, and once more when the last of it has been read.
      if (command.offset == 0 || command.offset + command.length == command.total) {
        if (auto check = check_of(command)) comparison = std::make_shared<Comparison>(Comparison{std::move(check), {}});
      }
      moving_.at(command.id).comparison = comparison;
      orders.push_back(
          {command, object.id, lane.stream, put, std::move(comparison), object.refused, std::move(description)});
    }
    lane.pumping = true;
    ++pumping_;
    under_way_ += orders.size();
    lock.native().unlock();
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
    lock.native().lock();
    if (broken) {
      broken_ = broken;
      wake_everyone();
    }
    --pumping_;
    lane.pumping = false;
    for (const Handover& order : orders) sent(order.command.id);
    if (!refused.empty() && !closed_ && !broken_) tell_limits();
    for (const Handover& order : orders) {
      const auto failed = not_begun.find(order.object);
      if (failed == not_begun.end()) continue;
      const auto object = objects_.find(key_of(order.command.checkpoint));
      if (object != objects_.end() && object->second.id == order.object) object->second.refused = failed->second;
    }
    for (const auto& [command, error] : refused) {
      --under_way_;
      if (!closed_ && !broken_) tell_end(command, error);
    }
    if (closed_) machinery_->drained.notify_all();
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
void Engine::tell_end(policy::CommandId command, const Result<void>& result) {
  policy::event::Failed failed{.command = command};
  sent(command);
  if (!result) {
    const auto found = moving_.find(command);
    const bool reads = found != moving_.end() && reads_file(found->second.command);
    const Errc code = result.error().code;
    if (code == (reads ? Errc::out_of_memory : Errc::no_space)) failed.cause = policy::event::Failed::no_room;
    if (reads && (code == Errc::damaged || code == Errc::unknown_version)) failed.cause = policy::event::Failed::source;
    if (found != moving_.end() && found->second.comparison && code == Errc::damaged) {
      Record* const record = find_record(found->second.command.checkpoint);
      if (record != nullptr) {
        record->written_to = true;
        failed.cause = policy::event::Failed::source;
      }
    }
  }
  end_moving(command, result);
  if (result)
    feed(0, policy::event::Finished{command});
  else
    feed(0, failed);
}

bool Engine::reads_file(const policy::Command& command) const {
  return command.from.at.kind == policy::Endpoint::tier &&
         planner_->machine().tiers[static_cast<std::size_t>(command.from.at.index)].medium == policy::Medium::file;
}

// On an engine's thread.
void Engine::on_done(transfer::Token token, const Result<void>& result) {
  Lock lock(*this);
  --under_way_;
  if (closed_) {
    machinery_->drained.notify_all();
    return;
  }
  try {
    if (is_stream(token))
      stream_ended(token, result);
    else
      tell_end(token, result ? compared(token) : result);
    pump(lock);
  } catch (const std::exception& error) {
    broke(lock, error);
  }
}

// On the file engine's thread, as the end of a write: the disk has its next work at once, while this is checked.
void Engine::on_carried(transfer::Token token) {
  Lock lock(*this);
  if (closed_ || broken_) return;
  try {
    feed(0, policy::event::Carried{token});
    pump(lock);
  } catch (const std::exception& error) {
    broke(lock, error);
  }
}

// --- the pump thread: commands of calls that have returned, times, the event log -----------------------------------

bool Engine::unhanded() const {
  if (broken_ || closed_) return false;  // nothing is handed over any more
  for (const Lane& lane : lanes_) {
    if (!lane.pumping && !lane.queue.empty() && usable(lane.queue.front())) return true;
  }
  return false;
}

policy::Time Engine::due() const {
  if (broken_) return policy::kNever;
  return timers_.empty() ? wakeup_ : std::min(wakeup_, timers_.begin()->first);
}

// Whether the pump thread sleeps and must not; it is then to be notified.
bool Engine::wants_pump() {
  if (!pump_sleeps_) return false;
  const bool work = (!napping_ && unhanded()) || (machinery_->log && machinery_->log->full());
  if (!work && due() >= armed_) return false;
  pump_sleeps_ = false;
  return true;
}

void Engine::Lock::unlock() {
  const bool wake = engine_.wants_pump();
  lock_.unlock();
  if (wake) engine_.machinery_->pump.notify_one();
}

void Engine::wake_pump() {
  pump_sleeps_ = false;
  machinery_->pump.notify_one();
}

void Engine::run_timers() {
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first <= now()) {
    Timer* const timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    fired = timer->fired = true;
    timer->wake.notify_all();
  }
  if (fired) machinery_->ended.notify_all();  // a wait for what becomes durable first stands on its request, then there
  if (wakeup_ <= now()) {
    feed(0, policy::event::Tick{});
  }
}

void Engine::write_log(Lock& lock) {
  std::string text;
  text.swap(machinery_->log->text());
  lock.native().unlock();
  machinery_->log->write(text);
  lock.native().lock();
}

void Engine::run_pump() {
  Lock lock(*this);
  const auto awake = [&] { return !pump_sleeps_; };
  int naps = kNaps;  // since there was work
  policy::Time nap = kShortestNap;
  while (!closed_) {
    ++pump_rounds_;
    if (unhanded()) {
      naps = 0;
      nap = kShortestNap;
    }
    try {
      pump(lock);
      if (!broken_) run_timers();
    } catch (const std::exception& error) {
      broke(lock, error);
    }
    if (machinery_->log && machinery_->log->full()) write_log(lock);
    if (closed_ || unhanded()) continue;
    armed_ = due();
    const policy::Time time = now();
    if (armed_ <= time) continue;
    napping_ = naps < kNaps;
    if (napping_) {
      armed_ = std::min(armed_, time + nap);
      ++naps;
      nap = std::min(2 * nap, kLongestNap);
    }
    pump_sleeps_ = true;
    if (armed_ == policy::kNever) {
      EBB_WAIT(pump_sleeps, machinery_->pump.wait(lock.native(), awake));
    } else {
      const std::chrono::nanoseconds sleep(std::min(armed_ - time, kLongestSleep));
      EBB_WAIT(pump_sleeps_until, machinery_->pump.wait_for(lock.native(), sleep, awake));
    }
    pump_sleeps_ = false;
  }
}

// --- the worker: copies of restore_async ---------------------------------------------------------------------------

void Engine::run_worker() {
  Lock lock(*this);
  for (;;) {
    EBB_WAIT(worker_sleeps, machinery_->worker.wait(
                                lock.native(), [&] { return closed_ || !worker_queue_.empty() || !checks_.empty(); }));
    if (closed_) return;
    if (!checks_.empty()) {
      try {
        const std::shared_ptr<Request> request = background_.at(checks_.front());
        checks_.pop_front();
        if (auto right = check_handed_out(lock, *request, request->pieces, true); !right)
          request->wrong = right.error();
        if (closed_) return;  // its future is told so
        end_background(*request);
      } catch (const std::exception& error) {
        broke(lock, error);
      }
      continue;
    }
    const policy::RequestId id = worker_queue_.at(0);
    worker_queue_.pop_front();
    try {
      const std::shared_ptr<Request> request = background_.at(id);
      copy_own(lock, *request);
      pump(lock);
    } catch (const std::exception& error) {
      broke(lock, error);
    }
  }
}

void Engine::wake_everyone() {
  for (auto& [id, request] : requests_) request->changed.notify_all();
  machinery_->worker.notify_all();
  machinery_->ended.notify_all();
  machinery_->drained.notify_all();
  wake_pump();
}

// --- timers --------------------------------------------------------------------------------------------------------

Engine::Timer::Timer(Engine& engine, std::optional<Seconds> timeout, std::condition_variable& wake_)
    : wake(wake_), engine_(engine) {
  if (!timeout) return;
  at_ = later(engine.now(), *timeout);
  fired = *timeout <= Seconds(0);
  if (at_ != policy::kNever && !fired) engine_.timers_.emplace(at_, this);
}

Engine::Timer::~Timer() {
  if (!fired) engine_.timers_.erase({at_, this});
}

policy::Time Engine::later(policy::Time from, Seconds timeout) {
  return from + std::min(nanoseconds(timeout), policy::kNever - from);
}

policy::Time Engine::nanoseconds(Seconds timeout) {
  const double value = timeout.count() * 1e9;
  if (!(value > 0)) return 0;
  return value < 9e18 ? static_cast<policy::Time>(value) : policy::kNever;
}

}  // namespace ebb::runtime
