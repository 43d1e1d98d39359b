#pragma once
// The thread that makes the copies of restore_async.
#include <condition_variable>
#include <deque>
#include <thread>

#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Serves requests whose caller does not wait.
///
/// Thread safety: start() and join() from one thread; everything else takes the port's Locked.
/// 1. Copies of one request are made in the order in which they were added.
class BackgroundWorker {
 public:
  BackgroundWorker(PlannerPort& port, const Lifetime& lifetime, LinkQueues& queues, ApplicationCopies& copies,
                   CallTable& calls, Verifier& verifier)
      : port_(port), lifetime_(lifetime), queues_(queues), copies_(copies), calls_(calls), verifier_(verifier) {}
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  /// Called once the store is closed.
  void join();

  /// The request has one more copy to make.
  void add_copy(const Locked& /*locked*/, planner::RequestId request) {
    copies_to_make_.push_back(request);
    wake_.notify_one();
  }
  /// The request was answered, and what it was handed is to be checked before it ends.
  void add_check(const Locked& /*locked*/, planner::RequestId request) {
    checks_.push_back(request);
    wake_.notify_one();
  }
  void wake(const Locked& /*locked*/) { wake_.notify_all(); }

 private:
  void run();
  void check_next(Locked& locked);
  void copy_next(Locked& locked);

  PlannerPort& port_;
  const Lifetime& lifetime_;
  LinkQueues& queues_;
  ApplicationCopies& copies_;
  CallTable& calls_;
  Verifier& verifier_;
  std::condition_variable wake_;
  std::thread thread_;
  // By the port's mutex.
  std::deque<planner::RequestId> copies_to_make_;  // one entry for each command
  std::deque<planner::RequestId> checks_;
};

}  // namespace ebb::store
