#include "store/callers.hpp"

#include "base/wait_points.hpp"
#include "store/application_copies.hpp"
#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/timers.hpp"
#include "store/tokens.hpp"

namespace ebb::store {

bool Callers::has_work(const Locked& locked, const CallRow& request) const {
  if (lifetime_.closed(locked) || request.next == request.commands.size()) return false;
  const planner::Command& next = request.commands[request.next];
  return !calls_.unsent(locked, next.after) && memory_.usable(next);
}

void Callers::run_until_answered(Locked& locked, CallRow& request, const Timer* timer, const Interrupt& interrupted) {
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

void Callers::cancel(const Locked& locked, CallRow& request) {
  if (!request.wrong) port_.submit(locked, request.history, planner::event::Cancel{request.id});  // else it was
  if (request.copies && !request.answered && request.next == request.commands.size()) {
    // Transfers between tiers may still be under way in its name, perhaps for ever; none of them knows the caller's
    // memory, so that the caller need not stay for them.
    calls_.abandon(locked, request);
  }
  // Those for which there is no memory yet it never begins.
  while (!request.answered && request.next < request.commands.size() &&
         !memory_.usable(request.commands[request.next])) {
    queues_.complete(locked, request.commands[request.next++].id,
                     Error{Errc::timed_out, "its memory did not come in time"});
  }
}

// Asks whether the stream has done what it held before the call, since the caller is about to wait anyway.
void Callers::ask_ready(Locked& locked, CallRow& request) {
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

}  // namespace ebb::store
