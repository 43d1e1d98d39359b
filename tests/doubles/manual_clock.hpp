#pragma once
#include <atomic>

#include "os/clock.hpp"

namespace ebb::doubles {

/// A clock that only moves when a test moves it.
/// Thread safety: every method may be called from any thread.
class ManualClock final : public os::Clock {
 public:
  explicit ManualClock(std::int64_t start = 0) : now_(start) {}
  std::int64_t now() const noexcept override { return now_.load(); }
  void advance(std::int64_t nanoseconds) { now_.fetch_add(nanoseconds); }

 private:
  std::atomic<std::int64_t> now_;
};

}  // namespace ebb::doubles
