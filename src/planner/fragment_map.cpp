#include "planner/fragment_map.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::policy {

FragmentMap::FragmentMap(Bytes capacity, Bytes granule) : capacity_(capacity / granule * granule), granule_(granule) {
  if (capacity_ == 0) return;
  fragments_.push_back({0, capacity_, kGap});
  gaps_.insert({capacity_, 0});
  free_ = capacity_;
}

Bytes FragmentMap::footprint(Bytes bytes) const {
  return std::max<Bytes>(granule_, (bytes + granule_ - 1) / granule_ * granule_);
}

std::optional<Bytes> FragmentMap::place(std::uint32_t owner, Bytes size) {
  const auto gap = gaps_.lower_bound({size, 0});
  if (gap == gaps_.end()) return std::nullopt;
  const Bytes offset = gap->second;
  gaps_.erase(gap);
  const std::size_t i = index_of(offset);
  const Fragment rest{offset + size, fragments_[i].size - size, kGap};
  fragments_[i].size = size;
  fragments_[i].owner = owner;
  used_ += size;
  free_ -= size;
  if (rest.size > 0) {
    fragments_.insert(fragments_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
    gaps_.insert({rest.size, rest.offset});
  }
  return offset;
}

void FragmentMap::erase(Bytes offset) {
  const std::size_t i = index_of(offset);
  if (fragments_[i].owner == kGap) throw std::logic_error("fragment map: erased a gap");
  used_ -= fragments_[i].size;
  fragments_[i].size = usable(fragments_[i]);
  if (fragments_[i].size == 0) {
    fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  free_ += fragments_[i].size;
  fragments_[i].owner = kGap;
  std::size_t first = i, last = i + 1;
  if (i > 0 && fragments_[i - 1].owner == kGap) gaps_.erase({fragments_[--first].size, fragments_[i - 1].offset});
  if (last < fragments_.size() && fragments_[last].owner == kGap) {
    gaps_.erase({fragments_[last].size, fragments_[last].offset});
    ++last;
  }
  fragments_[first].size = fragments_[last - 1].offset + fragments_[last - 1].size - fragments_[first].offset;
  gaps_.insert({fragments_[first].size, fragments_[first].offset});
  fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                   fragments_.begin() + static_cast<std::ptrdiff_t>(last));
}

void FragmentMap::shrink(Bytes capacity) {
  capacity = capacity / granule_ * granule_;
  if (capacity > capacity_) throw std::logic_error("fragment map: memory that has ended came back");
  capacity_ = capacity;
  std::vector<Fragment> kept;
  gaps_.clear();
  free_ = 0;
  for (Fragment f : fragments_) {
    if (f.owner == kGap) {
      f.size = usable(f);
      if (f.size == 0) continue;
      gaps_.insert({f.size, f.offset});
      free_ += f.size;
    }
    kept.push_back(f);
  }
  fragments_ = std::move(kept);
}

std::vector<std::uint32_t> FragmentMap::owners_beyond() const {
  std::vector<std::uint32_t> owners;
  for (auto f = fragments_.rbegin(); f != fragments_.rend() && beyond(f->offset, f->size); ++f)
    owners.push_back(f->owner);
  return owners;
}

std::size_t FragmentMap::index_of(Bytes offset) const {
  const auto it = std::lower_bound(fragments_.begin(), fragments_.end(), offset,
                                   [](const Fragment& f, Bytes o) { return f.offset < o; });
  if (it == fragments_.end() || it->offset != offset) throw std::logic_error("fragment map: no fragment starts there");
  return static_cast<std::size_t>(it - fragments_.begin());
}

void FragmentMap::check() const {
  Bytes at = 0, used = 0, free = 0;
  bool gap_before = false;
  for (const Fragment& f : fragments_) {
    const bool gap = f.owner == kGap;
    if (f.offset < at || f.size == 0 || (f.offset > at && at < capacity_))
      throw std::logic_error("fragment map: fragments overlap or leave a hole");
    if (gap && beyond(f.offset, f.size)) throw std::logic_error("fragment map: a gap beyond the end");
    if (gap && gap_before) throw std::logic_error("fragment map: two gaps side by side");
    gap_before = gap;
    at = f.offset + f.size;
    (gap ? free : used) += f.size;
    if (gap && !gaps_.contains({f.size, f.offset})) throw std::logic_error("fragment map: a gap is not indexed");
  }
  std::size_t gaps = 0;
  for (const Fragment& f : fragments_) gaps += f.owner == kGap && gaps_.contains({f.size, f.offset});
  if (gaps != gaps_.size()) throw std::logic_error("fragment map: the index of gaps is stale");
  if (at < capacity_ || used != used_ || free != free_) throw std::logic_error("fragment map: bytes do not add up");
}

}  // namespace ebb::policy
