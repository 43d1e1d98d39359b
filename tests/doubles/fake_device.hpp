#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "tests/doubles/fake_memory.hpp"

namespace ebb::platform::testing {

/// The contents of unused ranges.
inline constexpr std::byte kPoison{0xEB};
void poison(void* memory, std::size_t bytes);
/// Whether every byte of a range is poison (false for an empty one).
bool is_poison(const void* memory, std::size_t bytes);

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
/// Thread safety: every method may be called from any thread.
/// 1. One lock guards all state; bytes are moved and poisoned with it held.
/// 2. A stream's first item is the only one that may complete, and only when what it waits for is done.
class FakeDevice final : public Device {
 public:
  /// Counts calls, one of which is refused.
  class Nth {
   public:
    /// The n-th from now on; 1 is the next.
    void set(std::uint64_t n) { at_ = counted_ + n; }
    /// Counts one. True: it is the one.
    bool next() { return ++counted_ == at_; }

   private:
    std::uint64_t counted_ = 0;
    std::optional<std::uint64_t> at_;
  };
  struct Options {
    std::uint64_t seed = 1;
    bool discrete = false;  // as a GPU: no inline stream, a legacy one
    bool automatic = true;  // the scheduler thread completes work; false: it begins held, step() and the like complete
    std::size_t granule = 4096;  // map_granule()
  };
  static constexpr StreamId kFirstStream = 16;  // made here; those after it count on
  FakeDevice() : FakeDevice(Options()) {}
  explicit FakeDevice(Options options);
  /// Discards incomplete work.
  ~FakeDevice() override;

  // --- on command ---
  /// Completes one item of a stream drawn from the seed. False: nothing can complete.
  bool step();
  /// Completes the next copy of `stream` (and the records and waits before it). False: it has none that can.
  bool complete(StreamId stream);
  /// Completes everything. Returns the number of copies.
  std::size_t run();
  /// A capture begins, or ends, on a stream.
  void set_capturing(StreamId stream, bool capturing);
  /// Pauses or resumes the scheduler thread.
  void hold();
  void release();
  /// The n-th copy enqueued from now on (1 is the next) fails: its target stays poison, the next event of its stream is
  /// failed.
  void fail_nth_copy(std::uint64_t n) { set(fail_copy_, n); }
  /// The n-th call of this kind from now on is refused at once and does nothing: copy(), record(), create_event(),
  /// synchronize() with io_error; map() and pin() with out_of_memory.
  void refuse_nth_copy(std::uint64_t n) { set(refuse_copy_, n); }
  void refuse_nth_record(std::uint64_t n) { set(refuse_record_, n); }
  void refuse_nth_event(std::uint64_t n) { set(refuse_event_, n); }
  void refuse_nth_synchronize(std::uint64_t n) { set(refuse_synchronize_, n); }
  void fail_nth_map(std::uint64_t n) { set(fail_map_, n); }
  void fail_nth_pin(std::uint64_t n) { set(fail_pin_, n); }
  /// From now on at most this many bytes in all are mapped to reserved ranges, or pinned, as if the GPU were full or
  /// the user's locked memory limited.
  void limit_mapped(std::size_t bytes);
  void limit_pinned(std::size_t bytes);

  // --- queries ---
  /// Copies enqueued and not complete; digests count as copies.
  std::size_t unfinished() const;
  /// Waits until at least `n` copies are enqueued and not complete.
  void await_unfinished(std::size_t n);
  std::uint64_t copies() const;
  /// Bytes allocated and not freed, and those mapped to reserved ranges.
  std::size_t allocated() const;
  /// Bytes of addresses that are reserved.
  std::size_t reserved() const;
  /// Bytes pinned, by allocate_host() too where it is discrete.
  std::size_t pinned() const;
  std::vector<std::string> violations() const;

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
  Result<StreamId> create_stream() override;
  void destroy_stream(StreamId stream) noexcept override;
  Result<EventId> create_event() override;
  void destroy_event(EventId event) noexcept override;
  Result<void> copy(StreamId stream, void* to, const void* from, std::size_t bytes) override;
  Result<void> digest(StreamId stream, const void* memory, std::size_t bytes, Digest* parts) override;
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
    bool digests = false;  // a copy that puts the digest of its source into the target
    std::size_t to_bytes() const { return digests ? kDigestParts * sizeof(Digest) : bytes; }
  };
  struct Stream {
    std::deque<Item> items;
    bool failed = false, capturing = false;
  };
  struct Event {
    std::uint64_t recorded = 0, reached = 0;  // generations
    std::set<std::uint64_t> failed;
  };
  bool ready_locked(const Stream& stream) const;
  void complete_locked(Stream& stream);
  bool step_locked();
  void settle_locked();
  void set(Nth& nth, std::uint64_t n);
  /// The first reason why a copy on this memory is refused, if any.
  std::optional<Error> refusal_locked(const void* to, const void* from, std::size_t bytes) const;
  void enqueue_locked(StreamId stream, Item item);
  void check_locked(const char* what, const void* memory, std::size_t bytes, bool writes);
  EventState state_locked(EventId event) const;
  void schedule();

  const bool discrete_;
  const std::size_t granule_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<StreamId, Stream> streams_;
  std::map<EventId, Event> events_;
  FakeMemory memory_;
  StreamId next_stream_ = kFirstStream;
  EventId next_event_ = 1;
  std::uint64_t copies_ = 0;
  Nth fail_copy_, refuse_copy_, refuse_record_, refuse_event_, refuse_synchronize_, fail_map_, fail_pin_;
  std::size_t map_limit_ = SIZE_MAX, pin_limit_ = SIZE_MAX;
  std::size_t unfinished_ = 0;
  std::vector<std::string> violations_;
  bool interrupted_ = false, held_ = false, stopping_ = false;
  std::thread scheduler_;
};

}  // namespace ebb::platform::testing
