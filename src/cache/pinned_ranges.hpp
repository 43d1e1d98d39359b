#pragma once
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <vector>

#include "device/device.hpp"
#include "planner/provisioner.hpp"

namespace ebb::cache {

/// The ranges of one memory that are registered with its device, and the copies of it in flight. A copy must not cross
/// the border of a registration, and a range must not be registered while a copy of it is in flight.
///
/// Thread safety: every method may be called from any thread; pin() and unpin_all() from one at a time.
/// 1. borders_mutex_ guards borders_: shared in for_each_part(), exclusively where a border is added. Memory in
///    use is registered with it held exclusively, so that a copy that begins meanwhile waits, as the device would make
///    it wait.
/// 2. copies_mutex_ guards copies_ and is taken last.
class PinnedRanges {
  using Range = planner::ByteRange;

 public:
  /// Registers a range; if it is `in_use`, copies of it may begin at any time. False: a copy in flight uses it.
  Result<bool> pin(device::Device& device, std::byte* memory, Range range, bool in_use) {
    std::unique_lock borders(borders_mutex_);
    // First, so that nothing can fail between a registration and its record.
    if (borders_.capacity() < borders_.size() + 2) borders_.reserve(2 * borders_.size() + 2);
    if (pinned_.capacity() == pinned_.size()) pinned_.reserve(2 * pinned_.size() + 1);
    if (in_use && copies_use(range)) return false;
    if (!in_use) borders.unlock();
    if (const Result<void> done = device.pin(memory + range.offset, range.length); !done) return done.error();
    if (!in_use) borders.lock();
    pinned_.push_back(range);
    for (const std::size_t border : {range.offset, range.end()}) {
      const auto place = std::ranges::lower_bound(borders_, border);
      if (place == borders_.end() || *place != border) borders_.insert(place, border);
    }
    return true;
  }
  void unpin_all(device::Device& device, std::byte* memory) noexcept {
    for (const Range& range : pinned_) device.unpin(memory + range.offset, range.length);
    pinned_.clear();
  }

  void copy_begun(Range range) {
    std::lock_guard lock(copies_mutex_);
    copies_.push_back(range);
  }
  void copy_ended(Range range) {
    std::lock_guard lock(copies_mutex_);
    const auto ended = std::ranges::find(copies_, range);
    if (ended == copies_.end()) throw std::logic_error("a copy ended that had not begun");
    *ended = copies_.back();
    copies_.pop_back();
  }

  /// Calls `f(offset, length)` for the parts of a range between borders. `f` must not wait for pin().
  template <typename F>
  void for_each_part(std::size_t offset, std::size_t bytes, F&& f) const {
    std::shared_lock lock(borders_mutex_);
    auto border = std::upper_bound(borders_.begin(), borders_.end(), offset);
    for (const std::size_t end = offset + bytes; offset < end;) {
      const std::size_t next = border == borders_.end() ? end : std::min(end, *border++);
      f(offset, next - offset);
      offset = next;
    }
  }

 private:
  bool copies_use(Range range) const {
    std::lock_guard lock(copies_mutex_);
    return std::ranges::any_of(copies_,
                               [&](Range copy) { return copy.offset < range.end() && range.offset < copy.end(); });
  }

  mutable std::shared_mutex borders_mutex_;
  std::vector<std::size_t> borders_;  // ascending
  mutable std::mutex copies_mutex_;
  std::vector<Range> copies_;  // in flight
  std::vector<Range> pinned_;
};

}  // namespace ebb::cache
