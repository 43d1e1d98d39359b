#include "os/clock.hpp"

#include <chrono>

namespace ebb::os {

std::int64_t SteadyClock::now() const noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace ebb::os
