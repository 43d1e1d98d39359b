#include "device/cuda/waiting.hpp"

#include <algorithm>
#include <ctime>
#include <sys/prctl.h>

namespace ebb::device::cuda {
namespace {

using Clock = AnyWait::Clock;

constexpr std::chrono::milliseconds kSpin{2};
constexpr std::chrono::microseconds kNap{50};
// The interval between polls, at first and at most: 1/32 of the time waited so far, so that the delay stays a small
// part of the wait, and short waits end promptly (a 4 MiB chunk takes 75 us to the host).
constexpr std::chrono::microseconds kLook{20}, kLongestLook{100};
constexpr int kLooks = 32;
// Waking a sleeping thread costs its waker several times a call's own bookkeeping. So after work the waiting thread
// keeps polling for as long as a loop that checkpoints every few milliseconds may pause.
constexpr std::chrono::milliseconds kLinger{30};

void nap(std::chrono::nanoseconds length) noexcept {
  const timespec asked{0, static_cast<long>(length.count())};  // below a second
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &asked, nullptr);
}

// The kernel may extend a thread's sleeps by its timer slack, 50 us by default: more than twice the sleep itself here.
class NoSlack {
 public:
  NoSlack() noexcept : before_(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) { ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0); }
  ~NoSlack() {
    if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_), 0, 0, 0);
  }
  NoSlack(const NoSlack&) = delete;
  NoSlack& operator=(const NoSlack&) = delete;

 private:
  const int before_;
};

std::chrono::nanoseconds between_looks(std::chrono::nanoseconds waited) noexcept {
  return std::clamp<std::chrono::nanoseconds>(waited / kLooks, kLook, kLongestLook);
}

// A wait may be longer than the clock can represent.
Clock::time_point until(Clock::time_point begin, std::chrono::nanoseconds at_most) noexcept {
  return begin + std::min<std::chrono::nanoseconds>(at_most, std::chrono::hours(24));
}

}  // namespace

cudaError_t query_event(EventId event) noexcept {
  const cudaError_t error = forget(cudaEventQuery(reinterpret_cast<cudaEvent_t>(event)));
  return gone(error) ? cudaSuccess : error;
}

cudaError_t await_event(EventId event) noexcept {
  const auto spin_until = Clock::now() + kSpin;
  for (;;) {
    const cudaError_t error = query_event(event);
    if (error != cudaErrorNotReady) return error;
    if (Clock::now() >= spin_until) nap(kNap);
  }
}

void AnyWait::wait(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept {
  const auto begin = Clock::now(), end = until(begin, at_most);
  if (events.empty()) return wait_for_work(begin, end);
  const auto ended = [](EventId event) { return query_event(event) != cudaErrorNotReady; };
  if (!interrupted_.exchange(false) && std::ranges::none_of(events, ended)) {
    const NoSlack precise;
    do {
      nap(between_looks(Clock::now() - begin));
    } while (!interrupted_.exchange(false) && std::ranges::none_of(events, ended) && Clock::now() < end);
  }
  last_work_ = Clock::now();
}

void AnyWait::wait_for_work(Clock::time_point begin, Clock::time_point end) noexcept {
  const auto linger_until = std::min(end, last_work_.load() + kLinger);
  if (begin < linger_until) {
    const NoSlack precise;
    for (auto time = begin; time < linger_until; time = Clock::now()) {
      if (interrupted_.exchange(false)) return;
      nap(between_looks(time - begin));
    }
  }
  std::unique_lock lock(mutex_);
  ++sleepers_;
  woken_.wait_until(lock, end, [&] { return interrupted_.exchange(false); });
  --sleepers_;
}

void AnyWait::interrupt() noexcept {
  interrupted_ = true;
  if (sleepers_ == 0) return;
  // Under the lock, so that a sleeper is not between its check of the flag and its wait when it is notified.
  std::lock_guard lock(mutex_);
  woken_.notify_all();
}

}  // namespace ebb::device::cuda
