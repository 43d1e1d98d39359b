#include "store/lifetime.hpp"

#include <algorithm>
#include <string>

#include "base/wait_points.hpp"

namespace ebb::store {
namespace {

constexpr planner::Time kLastWait = 1'000'000'000;  // for what is in flight when the time to drain is over

}  // namespace

planner::Time nanoseconds(Seconds timeout) {
  const double value = timeout.count() * 1e9;
  if (!(value > 0)) return 0;
  return value < 9e18 ? static_cast<planner::Time>(value) : planner::kNever;
}

planner::Time later(planner::Time from, Seconds timeout) {
  return from + std::min(nanoseconds(timeout), planner::kNever - from);
}

Lifetime::Lifetime(const PlannerPort& port) : port_(port) {}

Error Lifetime::forked_error() const {
  return {Errc::unsupported, "this store was opened by process " + std::to_string(mark_.process()) +
                                 ", and this is a forked child: open a store of its own here"};
}

std::optional<Result<void>> Lifetime::begin_closing(Locked& locked, const Interrupt& interrupted) {
  const auto mine = [&] { return !closing_ || ended_ || !stuck_; };
  while (!mine()) {  // another thread closes it
    if (!interrupted) {
      EBB_WAIT(second_close, phases_.wait(locked.native(), mine));
      break;
    }
    bool woken = false;
    EBB_WAIT(second_close_polled, woken = phases_.wait_for(locked.native(), kInterruptEvery, mine));
    if (woken || !asked_to_stop(locked, interrupted)) continue;
    return Error{Errc::timed_out, "closing the store was interrupted: another thread is still closing it"};
  }
  if (closing_) return stuck_;
  closing_ = true;
  return {};
}

void Lifetime::stop_closing(const Locked& /*locked*/) {
  closing_ = false;
  phases_.notify_all();
}

Result<void> Lifetime::set_stuck(const Locked& /*locked*/, const Error& why) {
  stuck_ = Error{Errc::timed_out, why.message};
  phases_.notify_all();
  return stuck_;
}

void Lifetime::set_ended(const Locked& /*locked*/) {
  ended_ = true;
  phases_.notify_all();
}

bool Lifetime::await(Locked& locked, planner::Time until, const std::function<bool()>& over) {
  if (until == planner::kNever) {
    EBB_WAIT(close_drains, quiet_.wait(locked.native(), over));
    return true;
  }
  const std::chrono::nanoseconds left(std::max<planner::Time>(kLastWait, until - port_.now()));
  EBB_WAIT(close_in_time, quiet_.wait_for(locked.native(), left, over));
  return over();
}

}  // namespace ebb::store
