#pragma once
// How the host waits for a GPU's events.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>

#include "device/cuda/driver.hpp"
#include "device/device.hpp"

namespace ebb::platform::cuda {

/// cudaErrorNotReady while it is pending. A driver that has shut down has no work left: then it is cudaSuccess.
cudaError_t query_event(EventId event) noexcept;

/// Spins for as long as a device copy may take (its caller waits for nothing else, and sleeping would cost a good part
/// of such a copy), then looks now and then. What query_event() said last.
cudaError_t await_event(EventId event) noexcept;

/// The completion thread's wait. The driver can wake a thread for one event, not for the first of several; so the
/// events are looked at every few microseconds, with a sleep between that costs a small part of a core.
///
/// Thread safety: every method may be called from any thread, with the GPU's context current (Current).
/// 1. interrupted_ is set by interrupt() and taken by one wait that returns for it.
/// 2. A wait without events counts itself in sleepers_ before it looks at interrupted_, interrupt() sets interrupted_
///    before it looks at sleepers_ (both sequentially consistent): so one of the two sees the other, and nobody is
///    notified when nobody sleeps. A wait with events sees the flag at its next look, and so does one without in its
///    first milliseconds after work, when it is not asleep yet.
class AnyWait {
 public:
  using Clock = std::chrono::steady_clock;

  void wait(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept;
  void interrupt() noexcept;

 private:
  void wait_for_work(Clock::time_point begin, Clock::time_point end) noexcept;

  std::atomic<bool> interrupted_{false};
  std::atomic<Clock::time_point> last_work_{Clock::time_point()};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

}  // namespace ebb::platform::cuda
