#pragma once
// Where a store is between open() and the end of close(), and what is in flight meanwhile.
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <optional>

#include "ebbtide/store.hpp"
#include "os/fork_mark.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// How often a call that waits asks whether it is to go on.
inline constexpr auto kInterruptEvery = std::chrono::milliseconds(50);

/// Gives the mutex up and asks: this is the caller's code.
inline bool asked_to_stop(Locked& locked, const Interrupt& interrupted) {
  locked.unlock();
  const bool asked = [&]() noexcept { return interrupted && interrupted(); }();
  locked.lock();
  return asked;
}

/// `timeout` from `from` on; planner::kNever when that is beyond all times.
planner::Time nanoseconds(Seconds timeout);
planner::Time later(planner::Time from, Seconds timeout);

/// A store's phases, and the count of what runs without the mutex.
///
/// Thread safety: forked() and the errors may be called from any thread; everything else takes the port's Locked.
/// 1. Phases follow one another: opening, open, closing (it drains, and may be open again), closed, ended. A closing
///    whose files do not answer is left stuck, and stays closed.
/// 2. Once it is closed the planner hears nothing any more and nothing new begins; await() then returns only when
///    nothing is in flight, or its time is over.
class Lifetime {
 public:
  explicit Lifetime(const PlannerPort& port);

  /// The error in a forked child, which must not touch the mutex.
  std::optional<Error> forked() const { return mark_.forked() ? std::optional(forked_error()) : std::nullopt; }
  Error closed_error() const { return {Errc::closed, "the store is closed"}; }

  bool opened(const Locked& /*locked*/) const { return opened_; }
  bool closing(const Locked& /*locked*/) const { return closing_; }
  bool closed(const Locked& /*locked*/) const { return closed_; }
  /// Neither closed nor poisoned.
  bool running(const Locked& locked) const { return !closed_ && !port_.poisoned(locked); }
  void set_opened(const Locked& /*locked*/) { opened_ = true; }
  /// Waits while another thread closes. Nothing: the caller is the one that closes. Otherwise what close() returns.
  std::optional<Result<void>> begin_closing(Locked& locked, const Interrupt& interrupted);
  /// The store stays open.
  void stop_closing(const Locked& locked);
  void set_closed(const Locked& /*locked*/) { closed_ = true; }
  /// The store's files did not answer in time, and may never. Returns what every close() returns from now on.
  Result<void> set_stuck(const Locked& locked, const Error& why);
  void set_ended(const Locked& locked);

  void begin(const Locked& /*locked*/, std::size_t count = 1) { in_flight_ += count; }
  void end(const Locked& /*locked*/, std::size_t count = 1) {
    in_flight_ -= count;
    if (closed_) quiet_.notify_all();
  }
  bool idle(const Locked& /*locked*/) const { return in_flight_ == 0; }
  /// Waits until over(), but no longer than `until` or a moment, whichever is later. False: it is not over.
  bool await(Locked& locked, planner::Time until, const std::function<bool()>& over);
  void wake(const Locked& /*locked*/) { quiet_.notify_all(); }

 private:
  Error forked_error() const;

  const PlannerPort& port_;
  const os::ForkMark mark_;
  std::condition_variable quiet_;   // nothing is in flight, or the storage has stopped
  std::condition_variable phases_;  // a closing has ended
  // All below by the port's mutex.
  bool opened_ = false;
  bool closing_ = false;
  bool closed_ = false;
  bool ended_ = false;  // everything is freed
  Result<void> stuck_;
  std::size_t in_flight_ = 0;  // copies, transfers, streams and reads that some thread or engine has begun
};

/// Something that is under way without the mutex, for as long as this lasts: close() waits for its end, also when that
/// is an exception. Begins and ends with the mutex held.
class InFlight {
 public:
  InFlight(Locked& locked, Lifetime& lifetime) : locked_(locked), lifetime_(lifetime) {
    lifetime_.begin(locked_);
    locked_.unlock();
  }
  InFlight(const InFlight&) = delete;
  ~InFlight() {
    locked_.lock();
    if (!goes_on_) lifetime_.end(locked_);
  }
  /// Somebody else will see its end.
  void goes_on() { goes_on_ = true; }

 private:
  Locked& locked_;
  Lifetime& lifetime_;
  bool goes_on_ = false;
};

}  // namespace ebb::store
