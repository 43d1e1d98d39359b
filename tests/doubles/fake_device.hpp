#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/device.hpp"
#include "tests/doubles/fake_faults.hpp"
#include "tests/doubles/fake_memory.hpp"
#include "tests/doubles/fake_streams.hpp"

namespace ebb::doubles {

/// A device that is as late and as unordered as allowed, so that a missing wait is detected:
/// - a copy reads its source and writes its target only when it completes, so that a source overwritten too early or a
///   target used too early gives wrong bytes;
/// - the target is poison from copy() on until then (from when the copy may start, if an earlier one still reads it);
/// - discarded, freed and fresh memory is poison;
/// - work completes only on command, or by a seeded scheduler thread; in order on each stream, in any order between
///   them;
/// - uses of the inline stream, discards, frees, pins and unpins that meet unfinished work are reported by
///   violations(), and so are pins of pages that are not present;
/// - copies on reserved memory that is not mapped yet are refused by name, and so are, if it is discrete, copies that
///   cross a border of pinned memory;
/// - work after a failed copy fails: the next event of its stream, and the streams that wait for that event.
///
/// Thread safety: every method may be called from any thread. The lock of FakeStreams guards its memory too.
class FakeDevice final : public device::Device, public FakeStreams, public FakeFaults {
 public:
  struct Options {
    std::uint64_t seed = 1;
    bool discrete = false;  // as a GPU: no inline stream, a legacy one
    bool automatic = true;  // the scheduler thread completes work; false: it begins held, step() and the like complete
    std::size_t granule = 4096;  // map_granule()
  };
  FakeDevice() : FakeDevice(Options()) {}
  explicit FakeDevice(Options options);
  /// Discards incomplete work.
  ~FakeDevice() override;

  /// Bytes allocated and not freed, and those mapped to reserved ranges.
  std::size_t allocated() const;
  /// Bytes of addresses that are reserved.
  std::size_t reserved() const;
  /// Bytes pinned, by allocate_host() too where it is discrete.
  std::size_t pinned() const;

  std::string_view name() const noexcept override { return "fake"; }
  bool host_memory() const noexcept override { return !discrete_; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void free(std::byte* memory, std::size_t bytes) noexcept override;
  Result<std::byte*> allocate_host(std::size_t bytes) override;
  void free_host(std::byte* memory, std::size_t bytes) noexcept override;
  std::uint64_t free_bytes() noexcept override { return std::uint64_t{1} << 30; }
  Result<std::byte*> reserve(std::size_t bytes) override;
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override;
  std::size_t map_granule() const noexcept override { return granule_; }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override;
  Result<void> pin(std::byte* memory, std::size_t bytes) override;
  void unpin(std::byte* memory, std::size_t bytes) noexcept override;
  Result<device::StreamId> create_stream() override;
  void destroy_stream(device::StreamId stream) noexcept override;
  Result<device::EventId> create_event() override;
  void destroy_event(device::EventId event) noexcept override;
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override;
  Result<void> digest(device::StreamId stream, const void* memory, std::size_t bytes, device::Digest* parts) override;
  /// If it is discrete, what allocate() gave.
  bool owns(const void* memory, std::size_t bytes) noexcept override;
  Result<void> zones(device::StreamId stream, const device::ZoneJob& job) override;
  bool capturing(device::StreamId stream) noexcept override;
  Result<void> record(device::EventId event, device::StreamId stream) override;
  Result<void> stream_wait(device::StreamId stream, device::EventId event) override;
  Result<void> synchronize() override;
  device::EventState query(device::EventId event) noexcept override;
  Result<void> wait(device::EventId event) override;
  void wait_any(std::span<const device::EventId> events, std::chrono::nanoseconds at_most) noexcept override;
  void interrupt() noexcept override;
  void discard(void* memory, std::size_t bytes) noexcept override;

 private:
  /// The first reason why a copy on this memory is refused, if any.
  std::optional<Error> refusal_locked(const void* to, const void* from, std::size_t bytes) const;

  const bool discrete_;
  const std::size_t granule_;
  FakeMemory memory_;
};

}  // namespace ebb::doubles
