#include "store/timers.hpp"

#include "store/lifetime.hpp"

namespace ebb::store {

bool Timers::fire(const Locked& /*locked*/, planner::Time now) {
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Timer* const timer = timers_.begin()->second;
    timers_.erase(timers_.begin());
    fired = timer->fired_ = true;
    timer->wake_.notify_all();
  }
  return fired;
}

Timer::Timer(Timers& timers, const Locked& /*locked*/, planner::Time now, std::optional<Seconds> timeout,
             std::condition_variable& wake)
    : timers_(timers), wake_(wake) {
  if (!timeout) return;
  at_ = later(now, *timeout);
  fired_ = *timeout <= Seconds(0);
  if (at_ != planner::kNever && !fired_) timers_.timers_.emplace(at_, this);
}

Timer::~Timer() {
  if (!fired_) timers_.timers_.erase({at_, this});
}

}  // namespace ebb::store
