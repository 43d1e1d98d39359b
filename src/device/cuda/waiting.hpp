#pragma once
// How the host waits for a GPU's events.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>

#include "device/cuda/driver.hpp"
#include "device/device.hpp"

namespace ebb::device::cuda {

/// cudaErrorNotReady while it is pending. cudaSuccess if the driver has shut down: no work is left.
cudaError_t query_event(EventId event) noexcept;

/// Spins for as long as a device copy may take (its caller has nothing else to do, and sleeping would cost a good part
/// of such a copy), then polls now and then. Returns the last query_event().
cudaError_t await_event(EventId event) noexcept;

/// The completion thread's wait. The driver can wake a thread for one event, but not for the first of several, so the
/// events are polled every few microseconds, with a sleep in between that costs a small part of a core.
///
/// Thread safety: every method may be called from any thread, with the GPU's context current (Current).
/// 1. interrupted_ is set by interrupt(), and cleared by the one wait that returns for it.
/// 2. A wait without events counts itself in sleepers_ before it reads interrupted_; interrupt() sets interrupted_
///    before it reads sleepers_ (both sequentially consistent). So one of the two sees the other, and interrupt()
///    notifies only if a thread sleeps. A wait with events sees the flag at its next poll, and so does one without in
///    its first milliseconds after work, before it sleeps.
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

}  // namespace ebb::device::cuda
