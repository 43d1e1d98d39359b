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

namespace ebb::doubles {

/// The contents of unused ranges.
inline constexpr std::byte kPoison{0xEB};
void poison(void* memory, std::size_t bytes);
/// Whether every byte of a range is poison (false for an empty one).
bool is_poison(const void* memory, std::size_t bytes);

/// The streams and events of a FakeDevice: the work on them, and the scheduler thread that completes it.
///
/// Thread safety: every public method may be called from any thread; `_locked` ones need the lock.
/// 1. One lock guards all state; bytes are moved and poisoned with it held.
/// 2. A stream's first item is the only one that may complete, and only when what it waits for is done.
class FakeStreams {
 public:
  static constexpr device::StreamId kFirstStream = 16;  // made here; those after it count on
  /// Completes one item of a stream drawn from the seed. False: nothing can complete.
  bool step();
  /// Completes the next copy of `stream` (and the records and waits before it). False: it has none that can.
  bool complete(device::StreamId stream);
  /// Completes everything. Returns the number of copies.
  std::size_t run();
  /// A capture begins, or ends, on a stream.
  void set_capturing(device::StreamId stream, bool capturing);
  /// Pauses or resumes the scheduler thread.
  void hold();
  void release();

  /// Copies enqueued and not complete; digests and work on zones count as copies.
  std::size_t unfinished() const;
  /// Waits until at least `n` copies are enqueued and not complete.
  void await_unfinished(std::size_t n);
  std::uint64_t copies() const;
  std::vector<std::string> violations() const;

 protected:
  FakeStreams(std::uint64_t seed, bool held);
  ~FakeStreams() = default;
  /// Ends the scheduler thread; incomplete work stays so.
  void stop();

  struct Item {
    enum class Kind : std::uint8_t { copy, record, wait } kind = Kind::copy;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    device::EventId event = 0;
    std::uint64_t generation = 0;  // of the event
    bool poisoned = false, fails = false;
    bool digests = false;                       // a copy that puts the digest of its source into the target
    std::optional<device::ZoneJob> zones = {};  // work on its source, in place of a copy
    std::size_t to_bytes() const { return zones ? 0 : digests ? device::kDigestParts * sizeof(device::Digest) : bytes; }
  };
  struct Stream {
    std::deque<Item> items;
    bool failed = false, capturing = false;
  };
  struct Event {
    std::uint64_t recorded = 0, reached = 0;  // generations
    std::set<std::uint64_t> failed;
  };
  void settle_locked();
  void enqueue_locked(device::StreamId stream, Item item);
  void check_locked(const char* what, const void* memory, std::size_t bytes, bool writes);
  device::EventState state_locked(device::EventId event) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<device::StreamId, Stream> streams_;
  std::map<device::EventId, Event> events_;
  device::StreamId next_stream_ = kFirstStream;
  device::EventId next_event_ = 1;
  std::uint64_t copies_ = 0;
  std::vector<std::string> violations_;
  bool interrupted_ = false;

 private:
  bool ready_locked(const Stream& stream) const;
  void complete_locked(Stream& stream);
  bool step_locked();
  void schedule();

  std::mt19937_64 random_;
  std::size_t unfinished_ = 0;
  bool held_ = false, stopping_ = false;
  std::thread scheduler_;
};

}  // namespace ebb::doubles
