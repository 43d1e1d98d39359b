#include "storage/scratch/extent_allocator.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::storage {

ExtentAllocator::ExtentAllocator(std::uint64_t capacity) : capacity_(capacity), free_bytes_(capacity) {
  if (capacity) gaps_.emplace(0, capacity);
}

// The first bytes of a gap.
Extent ExtentAllocator::take_from(std::map<std::uint64_t, std::uint64_t>::iterator gap, std::uint64_t bytes) {
  const auto [offset, length] = *gap;
  gaps_.erase(gap);
  if (length > bytes) gaps_.emplace(offset + bytes, length - bytes);
  free_bytes_ -= bytes;
  return {offset, bytes};
}

std::optional<std::vector<Extent>> ExtentAllocator::allocate(std::uint64_t bytes) {
  if (bytes > free_bytes_) return {};
  std::vector<Extent> taken;
  if (bytes == 0) return taken;
  const auto fits = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& gap) { return gap.second >= bytes; });
  if (fits != gaps_.end()) {
    taken.push_back(take_from(fits, bytes));
    return taken;
  }
  std::vector<Extent> gaps;
  for (const auto& [offset, length] : gaps_) gaps.push_back({offset, length});
  std::stable_sort(gaps.begin(), gaps.end(), [](const Extent& a, const Extent& b) { return a.length > b.length; });
  for (const Extent& gap : gaps) {
    const std::uint64_t part = std::min(bytes, gap.length);
    taken.push_back(take_from(gaps_.find(gap.offset), part));
    bytes -= part;
    if (bytes == 0) break;
  }
  return taken;
}

void ExtentAllocator::free(const Extent& extent) {
  auto [offset, length] = extent;
  if (length == 0) return;
  const auto next = gaps_.lower_bound(offset);
  const auto before = next == gaps_.begin() ? gaps_.end() : std::prev(next);
  const bool overlaps_next = next != gaps_.end() && next->first < offset + length;
  const bool overlaps_before = before != gaps_.end() && before->first + before->second > offset;
  if (offset + length > capacity_ || offset + length < offset || overlaps_next || overlaps_before) {
    throw std::logic_error("an extent was freed that is not in use");
  }
  free_bytes_ += length;
  const bool joins_next = next != gaps_.end() && next->first == offset + length;
  const bool joins_before = before != gaps_.end() && before->first + before->second == offset;
  if (joins_next) {
    length += next->second;
    gaps_.erase(next);
  }
  if (joins_before) {
    before->second += length;
  } else {
    gaps_.emplace(offset, length);
  }
}

std::uint64_t ExtentAllocator::largest_gap() const {
  std::uint64_t largest = 0;
  for (const auto& [offset, length] : gaps_) largest = std::max(largest, length);
  return largest;
}

}  // namespace ebb::storage
