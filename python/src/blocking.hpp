#pragma once
// What a call does while it may wait: it releases the GIL, and checks for signals.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <nanobind/nanobind.h>
#include <optional>

#include "ebbtide/store.hpp"
#include "errors.hpp"

namespace ebb::python {

namespace nb = nanobind;

/// Releases the GIL from construction to destruction, and is counted, so that closing at interpreter exit can wait for
/// it.
class Unlocked {
 public:
  explicit Unlocked(std::atomic<int>& inside) : inside_(inside) {
    inside_.fetch_add(1, std::memory_order_relaxed);
    saved_ = PyEval_SaveThread();
  }
  ~Unlocked() {
    PyEval_RestoreThread(saved_);
    inside_.fetch_sub(1, std::memory_order_relaxed);
  }
  Unlocked(const Unlocked&) = delete;

 private:
  std::atomic<int>& inside_;
  PyThreadState* saved_;
};

/// Runs Python's signal handlers while a call waits; `rethrow` throws a handler's exception once the call ended.
class Signals {
 public:
  Interrupt interrupt() {
    return [this] { return poll(); };
  }
  bool raised() const { return raised_.has_value(); }
  void rethrow() {
    if (raised_) throw nb::python_error(std::move(*raised_));
  }

 private:
  bool poll() {
    nb::gil_scoped_acquire gil;
    if (raised_) return true;
    if (PyErr_CheckSignals() == 0) return false;
    raised_.emplace();
    return true;
  }
  std::optional<nb::python_error> raised_;
};

/// A timeout in seconds from Python; None and infinity mean no limit.
inline std::optional<Seconds> to_timeout(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  if (!(*seconds >= 0)) {
    raise(Errc::invalid_argument, "timeout=" + repr_text(nb::float_(*seconds)) +
                                      " is not valid: expected seconds, not negative, or None for no limit");
  }
  if (*seconds > 1e9) return std::nullopt;
  return Seconds(*seconds);
}

/// Repeats `wait(slice)`, running signal handlers in between, until it ends or `timeout` passes. For waits without side
/// effects. `ended()` says whether a `timed_out` is the result of the operation itself.
template <class Wait, class Ended>
Result<void> wait_in_slices(std::atomic<int>& inside, std::optional<Seconds> timeout, Wait wait, Ended ended) {
  using Clock = std::chrono::steady_clock;
  constexpr Seconds longest{0.05};
  const auto start = Clock::now();
  for (;;) {
    const Seconds passed = Clock::now() - start;
    const Seconds slice = timeout ? std::clamp(*timeout - passed, Seconds(0), longest) : longest;
    const auto wait_unlocked = [&](Seconds limit) {
      Unlocked unlocked(inside);
      return wait(limit);
    };
    const Result<void> result = wait_unlocked(slice);
    if (result || result.error().code != Errc::timed_out) return result;
    if (ended()) return wait_unlocked(Seconds(0));  // it may have ended well since
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (timeout && Clock::now() - start >= *timeout) return result;
  }
}

}  // namespace ebb::python
