#pragma once
// The fastest tier as an interface: memory, streams and events, as a GPU has them. Without a GPU: HostDevice. Double:
// tests/doubles/fake_device.hpp.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "device/digest.hpp"
#include "device/zones.hpp"
#include "ebbtide/error.hpp"

namespace ebb::device {

// On a GPU, the driver's own handles: application streams and ours are named alike.
using StreamId = std::uintptr_t;
using EventId = std::uintptr_t;

/// On ordinary memory only: copies complete on the calling thread before copy() returns, and events are done when
/// recorded.
inline constexpr StreamId kInlineStream = 0;
/// The application's legacy default stream on a GPU. No copy of ours runs on it: a copy enqueued there runs on a stream
/// of the device's own, after the legacy stream's earlier work and before its later work.
inline constexpr StreamId kLegacyStream = 1;

/// One of several copies.
struct BareCopy {
  void* to;
  const void* from;
  std::size_t bytes;
};

enum class EventState : std::uint8_t { pending, done, failed };

/// Thread safety: every method may be called from any thread, except that work for one stream and records of one event
/// come from one thread at a time.
/// 1. Work on one stream happens in order; only stream_wait() orders streams among each other. A stream may be the
///    application's: it is recorded on, waited for and copied on, but never destroyed.
/// 2. From copy() until an event recorded after it is done, the target's contents are undefined and the source must not
///    change. Only query(), wait(), wait_any() and stream_wait() order anything after it.
/// 3. An event that was never recorded is done. Recording it makes it pending again. It fails when work before it
///    fails.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const noexcept = 0;
  /// Whether application copies belong on the caller's own thread (kInlineStream): true for ordinary memory.
  virtual bool host_memory() const noexcept = 0;
  /// The ordinal of the GPU that this is; none: it is no GPU.
  virtual std::optional<int> gpu() const noexcept { return {}; }

  /// Device memory, aligned to 4096 or better, untouched. Error out_of_memory.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// Host memory for full-speed copies from and to this device (on a GPU: pinned), aligned to 4096 or better, with its
  /// pages present. Error out_of_memory.
  virtual Result<std::byte*> allocate_host(std::size_t bytes) = 0;
  virtual void free_host(std::byte* memory, std::size_t bytes) noexcept = 0;
  /// What could be allocated now.
  virtual std::uint64_t free_bytes() noexcept = 0;

  /// Addresses for `bytes` of device memory, aligned to 2 MiB, without memory: no copy may touch them before map().
  /// Error out_of_memory, also for 0 bytes.
  virtual Result<std::byte*> reserve(std::size_t bytes) = 0;
  /// Memory for the `bytes` at offset `at` of a reserved range, ready on return. Each piece begins where the previous
  /// one ended, and all but the range's last are multiples of map_granule(); pieces of one range come from one thread
  /// at a time. A copy may cross from one mapped piece into the next. Error out_of_memory: nothing of this piece is
  /// mapped, earlier ones stay. A piece that breaks these rules throws std::logic_error (where that can be detected).
  virtual Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) = 0;
  /// The unit of map(), in bytes: 2 MiB on a GPU.
  virtual std::size_t map_granule() const noexcept = 0;
  /// Frees a range of reserve(), with its mapped memory; `bytes` is the reserved size. No work on it may be in flight.
  virtual void unreserve(std::byte* range, std::size_t bytes) noexcept = 0;

  /// From now on copies from and to these whole pages of host memory run at full speed and asynchronously (on a GPU:
  /// pinned, cudaHostRegister). The pages are present (populate(), pages.hpp), none is pinned yet, and no work on them
  /// is in flight. From now on a copy that begins in this piece must end in it, and none may enter it from outside:
  /// such a copy is refused. Error out_of_memory: the memory is unchanged and stays unpinned.
  virtual Result<void> pin(std::byte* memory, std::size_t bytes) = 0;
  /// Undoes one pin() of the same memory and bytes, before the memory is freed. No work on it may be in flight.
  virtual void unpin(std::byte* memory, std::size_t bytes) noexcept = 0;

  virtual Result<StreamId> create_stream() = 0;
  /// Waits for its work first.
  virtual void destroy_stream(StreamId stream) noexcept = 0;
  virtual Result<EventId> create_event() = 0;
  /// The event must not be pending.
  virtual void destroy_event(EventId event) noexcept = 0;

  /// Enqueues a copy between any two places in device or host memory that do not overlap. Error invalid_argument, on
  /// kInlineStream: one of them cannot be read or written (try_touch()); part of it may have been copied.
  virtual Result<void> copy(StreamId stream, void* to, const void* from, std::size_t bytes) = 0;
  /// Enqueues copies of which none overlaps another. On a GPU many short ones within its memory cost the host far
  /// less than as many calls of copy(). The error is the first that copy() has; others may have been enqueued.
  virtual Result<void> copy_all(StreamId stream, std::span<const BareCopy> parts) {
    for (const BareCopy& one : parts)
      if (auto result = copy(stream, one.to, one.from, one.bytes); !result) return result;
    return {};
  }
  /// Enqueues the digest of device memory, aligned to 16; the digest is computed where the memory is. `parts` are
  /// kDigestParts in memory of allocate_host(); once an event recorded after it is done, they add up to the digest
  /// (sum_of()). As a copy does, it reads the memory when the stream gets there. Error unsupported: a GPU, in a build
  /// without nvcc.
  virtual Result<void> digest(StreamId stream, const void* memory, std::size_t bytes, Digest* parts) = 0;
  /// Whether this is memory of the GPU that this is, from its first byte to its last: no page of it can be protected.
  virtual bool owns(const void*, std::size_t) noexcept { return false; }
  /// Enqueues work on zones of device memory (zones.hpp), done where the memory is. As a copy does, it reads and writes
  /// when the stream gets there. Error unsupported: a GPU, in a build without nvcc.
  virtual Result<void> zones(StreamId stream, const ZoneJob& job) = 0;
  /// Whether work enqueued on `stream` now would become part of a graph being captured, or invalidate its capture.
  virtual bool capturing(StreamId stream) noexcept = 0;
  /// Whether `stream` is known to belong to another device: nothing of ours can be ordered on it. Do not ask about a
  /// stream that is being captured.
  virtual bool foreign(StreamId) noexcept { return false; }
  /// The event will be done when all work enqueued on `stream` so far is done.
  virtual Result<void> record(EventId event, StreamId stream) = 0;
  /// Later work on `stream` waits for what `event` was last recorded for.
  virtual Result<void> stream_wait(StreamId stream, EventId event) = 0;

  /// The host waits for all work on the device, including the application's streams. Error io_error when it failed.
  virtual Result<void> synchronize() = 0;

  virtual EventState query(EventId event) noexcept = 0;
  /// The host waits for it. Error io_error when work before it failed.
  virtual Result<void> wait(EventId event) = 0;
  /// Returns when at least one of `events` is not pending, after interrupt(), or after `at_most`; it may also return
  /// early.
  virtual void wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept = 0;
  /// Ends the current or the next wait_any().
  virtual void interrupt() noexcept = 0;

  /// Says that a range of any memory (device, host cache, staging ring) holds no data any more. Does nothing here; the
  /// double poisons the range, so that a late reader is detected.
  virtual void discard(void* memory, std::size_t bytes) noexcept = 0;
};

/// Ordinary memory; each stream is a thread that copies in order.
std::unique_ptr<Device> make_host_device();

}  // namespace ebb::device
