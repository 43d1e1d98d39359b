#pragma once
// The one contiguous buffer of a memory tier: a row of fragments, each a replica or a gap, without overlap or hole.
// Memory may end earlier than was thought: beyond its end lie replicas placed there before, until they leave, and no
// gap.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::policy {

class FragmentMap {
 public:
  static constexpr std::uint32_t kGap = UINT32_MAX;
  struct Fragment {
    Bytes offset = 0;
    Bytes size = 0;
    std::uint32_t owner = kGap;
  };

  FragmentMap(Bytes capacity, Bytes granule);

  // `bytes` rounded up to the granule; never 0, so that each replica has a place of its own.
  Bytes footprint(Bytes bytes) const;

  // Places `owner` at the start of the smallest gap that holds `size` (a footprint); none: no gap does.
  std::optional<Bytes> place(std::uint32_t owner, Bytes size);
  // Makes the fragment that starts at `offset` a gap, merged with its neighbours; beyond the end it is no more.
  void erase(Bytes offset);
  // The memory ends at `capacity`, which is no more than before; what lies beyond or across that stays where it is.
  void shrink(Bytes capacity);

  std::size_t index_of(Bytes offset) const;  // of the fragment that starts there

  std::span<const Fragment> fragments() const { return fragments_; }
  Bytes capacity() const { return capacity_; }
  Bytes used() const { return used_; }  // beyond the end as well
  Bytes free() const { return free_; }
  // What a fragment holds before the end.
  Bytes usable(const Fragment& f) const { return f.offset >= capacity_ ? 0 : std::min(f.size, capacity_ - f.offset); }
  bool beyond(Bytes offset, Bytes size) const { return offset + size > capacity_; }
  // Beyond or across the end.
  std::vector<std::uint32_t> owners_beyond() const;
  Bytes largest_gap() const { return gaps_.empty() ? 0 : gaps_.rbegin()->first; }
  void check() const;  // throws std::logic_error

 private:
  Bytes capacity_;
  Bytes granule_;
  Bytes used_ = 0, free_ = 0;
  std::vector<Fragment> fragments_;         // by offset; what ends beyond the end is a replica
  std::set<std::pair<Bytes, Bytes>> gaps_;  // (size, offset) of each gap
};

}  // namespace ebb::policy
