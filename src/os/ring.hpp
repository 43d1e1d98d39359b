#pragma once
// The interface below the asynchronous file engine: a queue of transfers to the kernel and a queue of completions back.
#include <cstddef>
#include <cstdint>
#include <span>

#include "os/sys_result.hpp"

namespace ebb::os {

struct RingOp {
  bool write = false;
  int fd = -1;
  void* memory = nullptr;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;  // returned with the completion; any value but UINT64_MAX
};

struct RingDone {
  std::uint64_t tag = 0;
  std::int32_t result = 0;  // bytes transferred, perhaps fewer than requested; or -errno
};

/// Thread safety: one thread, the owner, calls every method; wake() alone may be called from any thread.
/// 1. Every op that prepare() accepts gives exactly one completion.
/// 2. An op's memory and file belong to the kernel until its completion has been read.
class Ring {
 public:
  virtual ~Ring() = default;
  /// How many ops can be in flight at once.
  virtual unsigned entries() const noexcept = 0;
  /// Queues an op; the next wait() submits it. False: entries() ops are in flight.
  virtual bool prepare(const RingOp& op) noexcept = 0;
  /// Submits the queued ops, waits for at least one completion or a wake(), then takes all completions there are and
  /// returns how many, perhaps 0. Its errors, EINTR, EAGAIN, EBUSY and ENOMEM, lose nothing: call again. Where the
  /// system takes no ops any more, the errno is the result of each op that it did not take.
  virtual SysResult wait(std::span<RingDone> out) noexcept = 0;
  /// Ends the current or the next wait().
  virtual void wake() noexcept = 0;
};

}  // namespace ebb::os
