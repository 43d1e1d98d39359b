#include "store/pump_thread.hpp"

#include <algorithm>

#include "base/wait_points.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/persistence.hpp"
#include "store/timers.hpp"

namespace ebb::store {
namespace {

// A test's own clock may not advance: the pump thread then sleeps on until poke().
constexpr planner::Time kLongestSleep = 3600ll * 1000 * 1000 * 1000;
// Waking a sleeping thread costs a caller several times what all its bookkeeping does, and the one woken may take its
// processor. So after work the pump thread naps for some 30 ms, looking for more by itself, before it sleeps.
constexpr planner::Time kShortestNap = 100'000, kLongestNap = 250'000;
constexpr int kNaps = 128;

}  // namespace

void PumpThread::join() {
  if (thread_.joinable()) EBB_WAIT(pump_joined, thread_.join());
}

planner::Time PumpThread::due(const Locked& locked) const {
  if (port_.poisoned(locked)) return planner::kNever;
  return std::min(port_.wakeup(locked), timers_.next(locked));
}

bool PumpThread::wanted(const Locked& locked) {
  if (!sleeps_) return false;
  const bool work = (!napping_ && queues_.has_ready(locked)) || port_.log_full(locked);
  if (!work && due(locked) >= armed_) return false;
  sleeps_ = false;
  return true;
}

void PumpThread::wake(const Locked& /*locked*/) {
  sleeps_ = false;
  notify();
}

void PumpThread::run_timers(const Locked& locked) {
  // A wait for durability waits for its request first, then there.
  if (timers_.fire(locked, port_.now())) port_.ended().notify_all();
  if (port_.wakeup(locked) <= port_.now()) port_.submit(locked, 0, planner::event::Tick{});
}

void PumpThread::run() {
  Locked locked = port_.lock();
  const auto awake = [&] { return !sleeps_; };
  int naps = kNaps;  // since there was work
  planner::Time nap = kShortestNap;
  while (!lifetime_.closed(locked)) {
    ++rounds_;
    if (queues_.has_ready(locked)) {
      naps = 0;
      nap = kShortestNap;
    }
    try {
      queues_.drain(locked);
      if (!port_.poisoned(locked)) run_timers(locked);
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
    files_.trouble().write(locked);
    if (port_.log_full(locked)) port_.write_log(locked);
    locked.let_go();
    if (lifetime_.closed(locked) || queues_.has_ready(locked)) continue;
    armed_ = due(locked);
    const planner::Time time = port_.now();
    if (armed_ <= time) continue;
    napping_ = naps < kNaps;
    if (napping_) {
      armed_ = std::min(armed_, time + nap);
      ++naps;
      nap = std::min(2 * nap, kLongestNap);
    }
    sleeps_ = true;
    if (armed_ == planner::kNever) {
      EBB_WAIT(pump_sleeps, wake_.wait(locked.native(), awake));
    } else {
      const std::chrono::nanoseconds sleep(std::min(armed_ - time, kLongestSleep));
      EBB_WAIT(pump_sleeps_until, wake_.wait_for(locked.native(), sleep, awake));
    }
    sleeps_ = false;
  }
}

}  // namespace ebb::store
