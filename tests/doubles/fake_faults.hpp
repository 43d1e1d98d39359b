#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace ebb::doubles {

/// Counts calls, one of which is refused.
///
/// Thread safety: every method may be called from any thread.
class Nth {
 public:
  /// The n-th from now on; 1 is the next.
  void set(std::uint64_t n) {
    std::lock_guard lock(mutex_);
    at_ = counted_ + n;
  }
  /// Counts one. True: it is the one.
  bool next() {
    std::lock_guard lock(mutex_);
    return ++counted_ == at_;
  }

 private:
  std::mutex mutex_;
  std::uint64_t counted_ = 0;
  std::optional<std::uint64_t> at_;
};

/// What a FakeDevice refuses on command.
///
/// Thread safety: every method may be called from any thread.
class FakeFaults {
 public:
  /// The n-th copy enqueued from now on (1 is the next) fails: its target stays poison, the next event of its stream is
  /// failed.
  void fail_nth_copy(std::uint64_t n) { fail_copy_.set(n); }
  /// The n-th call of this kind from now on is refused at once and does nothing: copy(), record(), create_event(),
  /// synchronize() with io_error; map() and pin() with out_of_memory.
  void refuse_nth_copy(std::uint64_t n) { refuse_copy_.set(n); }
  void refuse_nth_record(std::uint64_t n) { refuse_record_.set(n); }
  void refuse_nth_event(std::uint64_t n) { refuse_event_.set(n); }
  void refuse_nth_synchronize(std::uint64_t n) { refuse_synchronize_.set(n); }
  void fail_nth_map(std::uint64_t n) { fail_map_.set(n); }
  void fail_nth_pin(std::uint64_t n) { fail_pin_.set(n); }
  /// From now on at most this many bytes in all are mapped to reserved ranges, or pinned, as if the GPU were full or
  /// the user's locked memory limited.
  void limit_mapped(std::size_t bytes) { map_limit_ = bytes; }
  void limit_pinned(std::size_t bytes) { pin_limit_ = bytes; }

 protected:
  Nth fail_copy_, refuse_copy_, refuse_record_, refuse_event_, refuse_synchronize_, fail_map_, fail_pin_;
  std::atomic<std::size_t> map_limit_ = SIZE_MAX, pin_limit_ = SIZE_MAX;
};

}  // namespace ebb::doubles
