#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "platform/device.hpp"

namespace ebb::platform::testing {

/// What ranges hold that hold nothing.
inline constexpr std::byte kPoison{0xEB};
/// Whether every byte of a range is poison (false for an empty one).
bool is_poison(const void* memory, std::size_t bytes);

/// A device that is as late and as unordered as a device may be, so that a wait left out is seen:
/// - a copy reads its source and writes its target only when it completes, so that a source overwritten too early or a
///   target used too early gives wrong bytes;
/// - the target is poison from copy() on until then (from when the copy may start, if an earlier one still reads it);
/// - discarded, freed and fresh memory is poison;
/// - work completes only on command, or by a seeded scheduler thread; in order on each stream, in any order between
///   them;
/// - uses of the inline stream, discards and frees that meet unfinished work are told by violations().
///
/// Thread safety: every method may be called from any thread.
/// 1. One lock guards all state; bytes are moved and poisoned with it held.
/// 2. A stream's first item is the only one that may complete, and only when what it waits for is done.
class FakeDevice final : public Device {
 public:
  struct Options {
    std::uint64_t seed = 1;
    bool discrete = false;   // as a GPU: no inline stream, a legacy one
    bool automatic = true;   // the scheduler thread completes work; false: it begins held, step() and the like complete
  };
  static constexpr StreamId kFirstStream = 16;  // made here; those after it count on
  FakeDevice() : FakeDevice(Options()) {}
  explicit FakeDevice(Options options);
  /// What is not complete by now is forgotten.
  ~FakeDevice() override;

  // --- on command ---
  /// Completes one item of a stream drawn from the seed. False: nothing can complete.
  bool step();
  /// Completes the next copy of `stream` (and the records and waits before it). False: it has none that can.
  bool complete(StreamId stream);
  /// Completes all there is. Returns how many copies.
  std::size_t run();
  /// A capture begins, or ends, on a stream.
  void set_capturing(StreamId stream, bool capturing);
  /// The scheduler thread stands still, or goes on.
  void hold();
  void release();
  /// The n-th copy enqueued from now on (1 is the next) fails: its target stays poison, the next event of its stream is
  /// failed.
  void fail_nth_copy(std::uint64_t n);
  /// The n-th copy() from now on is refused at once.
  void refuse_nth_copy(std::uint64_t n);

  // --- what can be asked ---
  /// Copies enqueued and not complete.
  std::size_t unfinished() const;
  /// Waits until at least `n` copies are enqueued and not complete.
  void await_unfinished(std::size_t n);
  std::uint64_t copies() const;
  /// Bytes allocated and not freed.
  std::size_t allocated() const;
  std::vector<std::string> violations() const;

  std::string_view name() const noexcept override { return "fake"; }
  bool host_memory() const noexcept override { return !discrete_; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void free(std::byte* memory, std::size_t bytes) noexcept override;
  Result<std::byte*> allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { free(memory, bytes); }
  std::uint64_t free_bytes() noexcept override { return std::uint64_t{1} << 30; }
  Result<StreamId> create_stream() override;
  void destroy_stream(StreamId stream) noexcept override;
  Result<EventId> create_event() override;
  void destroy_event(EventId event) noexcept override;
  Result<void> copy(StreamId stream, void* to, const void* from, std::size_t bytes) override;
  bool capturing(StreamId stream) noexcept override;
  Result<void> record(EventId event, StreamId stream) override;
  Result<void> stream_wait(StreamId stream, EventId event) override;
  Result<void> synchronize() override;
  EventState query(EventId event) noexcept override;
  Result<void> wait(EventId event) override;
  void wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept override;
  void interrupt() noexcept override;
  void discard(void* memory, std::size_t bytes) noexcept override;

 private:
  struct Item {
    enum class Kind : std::uint8_t { copy, record, wait } kind = Kind::copy;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    EventId event = 0;
    std::uint64_t generation = 0;  // of the event
    bool poisoned = false, fails = false;
  };
  struct Stream {
    std::deque<Item> items;
    bool failed = false, capturing = false;
  };
  struct Event {
    std::uint64_t recorded = 0, reached = 0;  // generations
    bool failed = false;
  };
  bool ready_locked(const Stream& stream) const;
  void complete_locked(Stream& stream);
  bool step_locked();
  void settle_locked();
  void check_locked(const char* what, const void* memory, std::size_t bytes, bool writes);
  EventState state_locked(EventId event) const;
  void schedule();

  const bool discrete_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<StreamId, Stream> streams_;
  std::map<EventId, Event> events_;
  std::map<std::byte*, std::size_t> memory_;
  StreamId next_stream_ = kFirstStream;
  EventId next_event_ = 1;
  std::uint64_t copies_ = 0, asked_ = 0;
  std::optional<std::uint64_t> fail_at_, refuse_at_;
  std::size_t unfinished_ = 0;
  std::vector<std::string> violations_;
  bool interrupted_ = false, held_ = false, stopping_ = false;
  std::thread scheduler_;
};

}  // namespace ebb::platform::testing
