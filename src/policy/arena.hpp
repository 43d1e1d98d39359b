#pragma once
// The one contiguous buffer of a memory tier: a row of fragments, each a replica or a gap, without overlap or hole.
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "policy/types.hpp"

namespace ebb::policy {

class Arena {
 public:
  static constexpr std::uint32_t kGap = UINT32_MAX;
  struct Fragment {
    Bytes offset = 0;
    Bytes size = 0;
    std::uint32_t owner = kGap;
  };

  Arena(Bytes capacity, Bytes granule);

  // `bytes` rounded up to the granule; never 0, so that each replica has a place of its own.
  Bytes footprint(Bytes bytes) const;

  // Places `owner` at the start of the smallest gap that holds `size` (a footprint); none: no gap does.
  std::optional<Bytes> place(std::uint32_t owner, Bytes size);
  // Makes the fragment that starts at `offset` a gap, merged with its neighbours.
  void erase(Bytes offset);

  std::size_t index_of(Bytes offset) const;  // of the fragment that starts there

  std::span<const Fragment> fragments() const { return fragments_; }
  Bytes capacity() const { return capacity_; }
  Bytes used() const { return used_; }
  Bytes largest_gap() const { return gaps_.empty() ? 0 : gaps_.rbegin()->first; }
  void check() const;  // throws std::logic_error

 private:
  Bytes capacity_;
  Bytes granule_;
  Bytes used_ = 0;
  std::vector<Fragment> fragments_;             // by offset
  std::set<std::pair<Bytes, Bytes>> gaps_;      // (size, offset) of each gap
};

}  // namespace ebb::policy
