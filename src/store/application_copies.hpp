#pragma once
// Copies from and to the application's memory.
#include "store/parts.hpp"
#include "store/request.hpp"

namespace ebb::store {

/// Makes a request's own copies: at once on the calling thread, or on one of the device's streams.
///
/// Thread safety: copy_next() takes the port's Locked, and gives the mutex up while bytes are copied.
/// 1. A copy is made by one thread, that which serves the request.
/// 2. A slot of the staging ring is never held by a stream of the application, which anything may hold up.
class ApplicationCopies {
 public:
  ApplicationCopies(PlannerPort& port, Lifetime& lifetime, Streams& streams, CacheMemory& memory, LinkQueues& queues,
                    CallTable& calls, Verifier& verifier, Catalog& catalog)
      : port_(port),
        lifetime_(lifetime),
        streams_(streams),
        memory_(memory),
        queues_(queues),
        calls_(calls),
        verifier_(verifier),
        catalog_(catalog) {}

  /// The next of a request's own copies. A background request may be gone when it returns, unless the caller shares it.
  void copy_next(Locked& locked, CallRow& request);

 private:
  struct Made {
    Result<void> result;
    bool enqueued = false;  // on the application's stream, which reports its end
    bool copied = false;
    const std::byte* refused = nullptr;  // the part of the application's memory that cannot be copied from or to
  };
  Made make(CallRow& request, const planner::Command& command, bool enqueue);
  Error refusal(const Locked& locked, const CallRow& request, const planner::Command& command,
                const std::byte* memory) const;
  Result<void> enqueue_parts(const CallRow& request, const planner::Command& command, device::StreamId stream,
                             const std::byte*& refused);
  Result<void> copy_at_once(CallRow& request, const planner::Command& command, const std::byte*& refused);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Streams& streams_;
  CacheMemory& memory_;
  LinkQueues& queues_;
  CallTable& calls_;
  Verifier& verifier_;
  Catalog& catalog_;
};

}  // namespace ebb::store
