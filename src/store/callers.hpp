#pragma once
// The threads of the application, in their calls.
#include "store/parts.hpp"
#include "store/request.hpp"

namespace ebb::store {

/// Serves a call on the thread that made it: its copies, what can be handed over meanwhile, and waiting.
///
/// Thread safety: run_until_answered() takes the port's Locked, and gives the mutex up while it copies or waits.
class Callers {
 public:
  Callers(PlannerPort& port, Lifetime& lifetime, CacheMemory& memory, CallTable& calls, LinkQueues& queues,
          ApplicationCopies& copies)
      : port_(port), lifetime_(lifetime), memory_(memory), calls_(calls), queues_(queues), copies_(copies) {}

  /// Returns when the planner has answered, every copy is on the application's stream, or the store is closed. Throws
  /// std::logic_error when the planner's contract is broken.
  void run_until_answered(Locked& locked, CallRow& request, const Timer* timer, const Interrupt& interrupted);

 private:
  /// Whether the request has a copy that can be made now: its memory is there, and the copies before it are made.
  bool has_work(const Locked& locked, const CallRow& request) const;
  void ask_ready(Locked& locked, CallRow& request);
  void cancel(const Locked& locked, CallRow& request);

  PlannerPort& port_;
  Lifetime& lifetime_;
  CacheMemory& memory_;
  CallTable& calls_;
  LinkQueues& queues_;
  ApplicationCopies& copies_;
};

}  // namespace ebb::store
