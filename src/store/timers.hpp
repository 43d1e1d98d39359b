#pragma once
// Time limits of threads that wait.
#include <condition_variable>
#include <optional>
#include <set>
#include <utility>

#include "ebbtide/store.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

class Timer;

/// The time limits that have not passed yet.
///
/// Thread safety: every method takes the port's Locked.
class Timers {
 public:
  /// The first time at which one fires; planner::kNever: none does.
  planner::Time next(const Locked& /*locked*/) const {
    return timers_.empty() ? planner::kNever : timers_.begin()->first;
  }
  /// Wakes those whose time has come. False: there are none.
  bool fire(const Locked& locked, planner::Time now);

 private:
  friend class Timer;
  std::set<std::pair<planner::Time, Timer*>> timers_;  // not yet fired
};

/// A time limit of a thread that waits: the pump thread wakes it, for the clock is a seam. Made and destroyed with the
/// mutex held.
class Timer {
 public:
  /// From `now` on.
  Timer(Timers& timers, const Locked& locked, planner::Time now, std::optional<Seconds> timeout,
        std::condition_variable& wake);
  Timer(const Timer&) = delete;
  ~Timer();
  bool fired() const { return fired_; }

 private:
  friend class Timers;
  Timers& timers_;
  std::condition_variable& wake_;
  planner::Time at_ = planner::kNever;
  bool fired_ = false;
};

}  // namespace ebb::store
