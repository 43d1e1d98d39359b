#pragma once
// The thread that makes the copies of restore_async.
#include <thread>

#include "base/start_thread.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Serves requests whose caller does not wait.
///
/// Thread safety: start() and join() from one thread.
class BackgroundWorker {
 public:
  BackgroundWorker(PlannerPort& port, const Lifetime& lifetime, LinkQueues& queues, ApplicationCopies& copies,
                   CallTable& calls, Verifier& verifier)
      : port_(port), lifetime_(lifetime), queues_(queues), copies_(copies), calls_(calls), verifier_(verifier) {}
  void start() {
    thread_ = base::thread([this] { run(); });
  }
  /// Called once the store is closed.
  void join();

 private:
  void run();
  void check(Locked& locked, CallRow& request);

  PlannerPort& port_;
  const Lifetime& lifetime_;
  LinkQueues& queues_;
  ApplicationCopies& copies_;
  CallTable& calls_;
  Verifier& verifier_;
  std::thread thread_;
};

}  // namespace ebb::store
