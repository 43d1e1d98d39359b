#include "store/call_table.hpp"

#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/application_copies.hpp"
#include "store/background_worker.hpp"
#include "store/cache_memory.hpp"
#include "store/call_statistics.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/pump_thread.hpp"
#include "store/tokens.hpp"

namespace ebb::store {

// --- requests ------------------------------------------------------------------------------------------------------

void CallTable::enter(Request& request) {
  request.id = next_request_++;
  request.started = port_.now();
  if (spare_) {
    spare_.key() = request.id;
    spare_.mapped() = &request;
    requests_.insert(std::move(spare_));
  } else {
    requests_.emplace(request.id, &request);
  }
}

CallTable::Entered::Entered(CallTable& table, const Locked& locked, Request& request)
    : table_(table), locked_(locked), request_(request) {
  table.enter(request);
}

CallTable::Entered::~Entered() {
  if (detached_) return;
  table_.streams_.put(locked_, request_.own);
  table_.leave(request_.id);
}

void CallTable::Entered::detach(std::shared_ptr<Request> request, std::shared_ptr<Waitable> waitable) {
  detached_ = true;
  request->background = true;
  request->waitable = std::move(waitable);
  table_.background_.emplace(request_.id, std::move(request));
}

void CallTable::add_background(const Locked& /*locked*/, std::shared_ptr<Request> request) {
  request->background = true;
  enter(*request);
  background_.emplace(request->id, std::move(request));
}

void CallTable::end_background(const Locked& locked, Request& request) {
  const bool writes = request.waitable && !request.waitable->background;
  if (request.answer.reason != planner::Reason::ok || request.wrong) {
    const Error error =
        request.wrong ? *request.wrong : catalog_.refusal(locked, request.history, request.version, request.answer);
    if (writes && error.code == Errc::lost) {
      catalog_.mark_lost(locked, request.history, request.version,
                         {Errc::lost, catalog_.key_text(locked, request.history, request.version) +
                                          " was taken in stream order, and its bytes never came: " + error.message});
    }
    if (request.waitable) request.waitable->error = error;
  } else if (!writes) {
    statistics_.count_restore(locked, request.answer, request.bytes);
    catalog_.forget_if_gone(locked, request.history, request.version);
  }
  if (request.waitable) request.waitable->ended = true;
  ended_.notify_all();
  streams_.put(locked, request.own);
  const planner::RequestId id = request.id;
  leave(id);
  background_.erase(id);
}

void CallTable::end_all(const Locked& locked) {
  for (auto& [id, request] : background_) {
    streams_.put(locked, request->own);
    requests_.erase(id);
    if (!request->waitable) continue;
    request->waitable->ended = true;
    request->waitable->error = lifetime_.closed_error();
  }
  background_.clear();
  ended_.notify_all();
}

// --- what the planner gives ----------------------------------------------------------------------------------------

void CallTable::take_command(const Locked& locked, const planner::Command& command) {
  const auto found = requests_.find(command.request);
  if (found == requests_.end()) throw std::logic_error("a copy was ordered for a call that has ended");
  Request& request = *found->second;
  request.add(command);
  if (request.background)
    worker_.add_copy(locked, request.id);
  else
    request.changed.notify_one();
}

void CallTable::take_answer(const Locked& locked, planner::Answer& answer) {
  if (abandoned_.erase(answer.request) > 0) return;
  const auto found = requests_.find(answer.request);
  if (found == requests_.end()) throw std::logic_error("an answer came for a call that has ended");
  Request& request = *found->second;
  request.answer = std::move(answer);
  request.answered = true;
  request.by_ended ? ended_.notify_all() : request.changed.notify_one();
  if (verify_all_ && request.answer.reason == planner::Reason::ok) {
    if (const Record* const record = catalog_.find(locked, request.answer.checkpoint)) request.sums = record->sums;
  }
  if (!request.background) return;
  if (!request.sums || !request.info) return end_background(locked, request);
  worker_.add_check(locked, request.id);
}

void CallTable::take_spoiled(const Locked& /*locked*/, planner::RequestId id) {
  if (const auto found = requests_.find(id); found != requests_.end()) found->second->spoiled = true;
}

// --- waiting -------------------------------------------------------------------------------------------------------

bool CallTable::has_work(const Locked& locked, const Request& request) const {
  if (lifetime_.closed(locked) || request.next == request.commands.size()) return false;
  const planner::Command& next = request.commands[request.next];
  return !unsent_.contains(next.after) && memory_.usable(next);
}

void CallTable::run_until_answered(Locked& locked, Request& request, const Timer* timer, const Interrupt& interrupted) {
  bool cancelled = false, stop = false;
  const auto stopped = [&] { return !cancelled && (stop || request.refused || (timer != nullptr && timer->fired())); };
  const auto ready = [&] {
    return has_work(locked, request) || request.answered || !lifetime_.running(locked) || stopped();
  };
  while (!request.answered && !lifetime_.closed(locked) && !request.all_enqueued()) {
    port_.throw_if_poisoned(locked);
    if (has_work(locked, request)) {
      copies_.copy_next(locked, request);
      continue;
    }
    queues_.drain(locked);
    if (has_work(locked, request) || request.answered) continue;
    if (request.stream && !request.asks_ready) {
      ask_ready(locked, request);
      continue;
    }
    if (stopped()) {
      cancelled = true;
      cancel(locked, request);
      continue;
    }
    locked.wake_pump();
    if (!interrupted) {
      EBB_WAIT(request_answered, request.changed.wait(locked.native(), ready));
      continue;
    }
    bool woken = false;
    EBB_WAIT(request_polled, woken = request.changed.wait_for(locked.native(), kInterruptEvery, ready));
    if (!woken) stop = asked_to_stop(locked, interrupted) || stop;
  }
}

void CallTable::cancel(const Locked& locked, Request& request) {
  if (!request.wrong) port_.submit(locked, request.history, planner::event::Cancel{request.id});  // else it was
  if (request.copies && !request.answered && request.next == request.commands.size()) {
    // Transfers between tiers may still be under way in its name, perhaps for ever; none of them knows the caller's
    // memory, so that the caller need not stay for them.
    abandoned_.insert(request.id);
    request.answer.reason = planner::Reason::cancelled;
    request.answered = true;
  }
  // Those for which there is no memory yet it never begins.
  while (!request.answered && request.next < request.commands.size() &&
         !memory_.usable(request.commands[request.next])) {
    queues_.complete(locked, request.commands[request.next++].id,
                     Error{Errc::timed_out, "its memory did not come in time"});
  }
}

// Asks whether the stream has done what it held before the call, since the caller is about to wait anyway.
void CallTable::ask_ready(Locked& locked, Request& request) {
  request.asks_ready = true;
  const device::StreamId stream = *request.stream;
  const transfer::Token token = kReady | request.id;
  lifetime_.begin(locked);
  locked.unlock();
  const Result<void> followed = queues_.copies().follow(stream, token);
  locked.lock();
  if (followed) return;
  lifetime_.end(locked);
  request.refused = followed.error();  // nothing can be ordered on it: the call is given up
}

void CallTable::stream_ready(const Locked& locked, planner::RequestId id) {
  const auto found = requests_.find(id);
  port_.submit(locked, found == requests_.end() ? 0 : found->second->history, planner::event::Ready{id});
}

void CallTable::set_unsent(const Locked& /*locked*/, planner::CommandId command) {
  if (!streams_.host_memory()) unsent_.insert(command);
}

void CallTable::set_sent(const Locked& /*locked*/, planner::CommandId command) {
  if (unsent_.erase(command) == 0) return;
  for (auto& [id, request] : requests_) {
    if (request->next < request->commands.size() && request->commands[request->next].after == command) {
      request->changed.notify_one();
    }
  }
}

void CallTable::wake_requests(const Locked& /*locked*/) {
  for (auto& [id, request] : requests_) request->changed.notify_one();
}

void CallTable::wake_everyone(const Locked& locked) {
  for (auto& [id, request] : requests_) request->changed.notify_all();
  memory_.wake_lenders(locked);
  worker_.wake(locked);
  ended_.notify_all();
  lifetime_.wake(locked);
  pump_.wake(locked);
}

}  // namespace ebb::store
