#pragma once
// The seam below the asynchronous file engine: a queue of transfers to the kernel and one of completions back.
#include <cstddef>
#include <cstdint>
#include <span>

#include "os/sys_result.hpp"

namespace ebb::platform {

struct RingOp {
  bool write = false;
  int fd = -1;
  void* memory = nullptr;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;  // comes back with the completion; any value but UINT64_MAX
};

struct RingDone {
  std::uint64_t tag = 0;
  std::int32_t result = 0;  // bytes moved, perhaps fewer than asked for; or -errno
};

/// Thread safety: one thread, the owner, calls everything; wake() alone may be called from any thread.
/// 1. Every op that prepare() took gives exactly one completion.
/// 2. Memory and file of an op belong to the kernel until its completion was read.
class Ring {
 public:
  virtual ~Ring() = default;
  /// How many ops can be under way at once.
  virtual unsigned entries() const noexcept = 0;
  /// Queues an op; the next wait() hands it to the kernel. False: more than entries() are under way.
  virtual bool prepare(const RingOp& op) noexcept = 0;
  /// Hands over what is queued, waits for at least one completion or a wake(), then takes as many as there are: their
  /// number, perhaps 0. EINTR, EAGAIN, EBUSY and ENOMEM lose nothing: call again.
  virtual SysResult wait(std::span<RingDone> out) noexcept = 0;
  /// Makes the present or the next wait() return.
  virtual void wake() noexcept = 0;
};

}  // namespace ebb::platform
