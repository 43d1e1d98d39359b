#pragma once
// The only source of time. The planner has none: drivers read this clock and put the time into events.
#include <cstdint>

namespace ebb::os {

inline constexpr std::int64_t kSecond = 1'000'000'000;  // as a clock counts it

/// A clock that never goes back.
/// Thread safety: now() may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary start.
  virtual std::int64_t now() const noexcept = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  std::int64_t now() const noexcept override;
};

}  // namespace ebb::os
