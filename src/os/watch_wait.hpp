#pragma once
// How next() of a write watch waits.
#include <algorithm>
#include <chrono>

#include "ebbtide/error.hpp"

namespace ebb::os {

/// A limit of time, from its construction on.
class WaitLimit {
 public:
  explicit WaitLimit(std::chrono::milliseconds limit)
      : end_(std::chrono::steady_clock::now() +
             std::min<std::chrono::milliseconds>(limit, std::chrono::hours(1 << 20))) {}
  /// Waits until `fd` has something to read, or the bell, an eventfd, was rung: it is silent afterwards. False: the
  /// time is over. Allocates only for an error, io_error.
  Result<bool> wait(int fd, int bell) const;

 private:
  const std::chrono::steady_clock::time_point end_;
};

void ring_bell(int bell) noexcept;

}  // namespace ebb::os
