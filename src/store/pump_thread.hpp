#pragma once
// The thread that hands over what calls have left behind, and runs the timers.
#include <condition_variable>
#include <thread>

#include "base/start_thread.hpp"
#include "ebbtide/store.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Drains the link queues after calls that have returned, submits the planner's wake-ups, fires timers, and writes the
/// event log.
///
/// Thread safety: notify() may be called from any thread, start() and join() from one; everything else takes the port's
/// Locked.
/// 1. It sleeps only while there is nothing to hand over, unless it naps: then it looks for more by itself soon.
/// 2. A thread that makes work for it wakes it as it releases the port's Locked, and before it waits.
class PumpThread {
 public:
  PumpThread(PlannerPort& port, const Lifetime& lifetime, LinkQueues& queues, Persistence& files, Timers& timers)
      : port_(port), lifetime_(lifetime), queues_(queues), files_(files), timers_(timers) {}
  void start() {
    thread_ = base::thread([this] { run(); });
  }
  /// Called once the store is closed.
  void join();

  /// Whether it sleeps though there is work: the caller then calls notify().
  bool wanted(const Locked& locked);
  void notify() { wake_.notify_one(); }
  void wake(const Locked& locked);
  /// How many times its loop has run.
  std::uint64_t rounds(const Locked& /*locked*/) const { return rounds_; }

 private:
  void run();
  void run_timers(const Locked& locked);
  planner::Time due(const Locked& locked) const;

  PlannerPort& port_;
  const Lifetime& lifetime_;
  LinkQueues& queues_;
  Persistence& files_;
  Timers& timers_;
  std::condition_variable wake_;
  std::thread thread_;
  // All below by the port's mutex.
  bool sleeps_ = false;                    // false again as soon as it is to wake
  bool napping_ = false;                   // it will soon look for work by itself
  planner::Time armed_ = planner::kNever;  // until when it sleeps
  std::uint64_t rounds_ = 0;
};

}  // namespace ebb::store
