#pragma once
// The memory of one tier: a row of segments, each lent by somebody (this process, a node's pool, a peer GPU).
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cache/tier_memory.hpp"

namespace ebb::cache {

/// A lent piece of a tier.
struct MemorySegment {
  const std::uint64_t first;  // where it begins in the tier
  const std::unique_ptr<TierMemory> memory;
  std::atomic<bool> lost{false};  // what it held is gone; its addresses are still valid
};

/// Thread safety: add() is called by one thread at a time, everything else by any.
/// 1. Segments are added at the end and never removed: a reference stays valid until the row is destroyed.
class MemorySegments {
 public:
  static constexpr std::size_t kMost = 64;

  std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  MemorySegment& operator[](std::size_t number) const { return *segments_.at(number); }
  /// The segment with the byte at `offset` of the tier. There is at least one segment.
  MemorySegment& holding(std::uint64_t offset) const { return *segments_[number_of(offset)]; }
  std::size_t number_of(std::uint64_t offset) const {
    std::size_t number = count() - 1;
    while (segments_[number]->first > offset) --number;
    return number;
  }
  /// `extent`: what it takes up of the tier's offsets. False: there are kMost already.
  bool add(std::unique_ptr<TierMemory> memory, std::uint64_t extent) {
    const std::size_t number = count();
    if (number == kMost) return false;
    segments_[number].reset(new MemorySegment{end_, std::move(memory)});
    end_ += extent;
    count_.store(number + 1, std::memory_order_release);
    return true;
  }

 private:
  std::array<std::unique_ptr<MemorySegment>, kMost> segments_;
  std::atomic<std::size_t> count_{0};
  std::uint64_t end_ = 0;
};

}  // namespace ebb::cache
