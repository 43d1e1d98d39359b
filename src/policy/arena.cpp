#include "policy/arena.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::policy {

Arena::Arena(Bytes capacity, Bytes granule) : capacity_(capacity / granule * granule), granule_(granule) {
  if (capacity_ > 0) fragments_.push_back({0, capacity_, kGap});
}

Bytes Arena::footprint(Bytes bytes) const {
  return std::max<Bytes>(granule_, (bytes + granule_ - 1) / granule_ * granule_);
}

std::optional<Bytes> Arena::place(std::uint32_t owner, Bytes size) {
  if (capacity_ - used_ < size) return std::nullopt;
  std::size_t best = fragments_.size();
  for (std::size_t i = 0; i < fragments_.size(); ++i) {
    const Fragment& f = fragments_[i];
    if (f.owner == kGap && f.size >= size && (best == fragments_.size() || f.size < fragments_[best].size)) best = i;
  }
  if (best == fragments_.size()) return std::nullopt;
  const Bytes offset = fragments_[best].offset;
  fill(best, owner, size);
  return offset;
}

void Arena::place_at(Bytes offset, std::uint32_t owner, Bytes size) {
  const std::size_t i = index_of(offset);
  if (fragments_[i].owner != kGap || fragments_[i].size < size)
    throw std::logic_error("arena: placed where there is no such gap");
  fill(i, owner, size);
}

void Arena::fill(std::size_t gap, std::uint32_t owner, Bytes size) {
  Fragment& f = fragments_[gap];
  const Fragment rest{f.offset + size, f.size - size, kGap};
  f.size = size;
  f.owner = owner;
  used_ += size;
  if (rest.size > 0) fragments_.insert(fragments_.begin() + static_cast<std::ptrdiff_t>(gap) + 1, rest);
}

void Arena::erase(Bytes offset) {
  std::size_t i = index_of(offset);
  if (fragments_[i].owner == kGap) throw std::logic_error("arena: erased a gap");
  used_ -= fragments_[i].size;
  fragments_[i].owner = kGap;
  std::size_t first = i, last = i + 1;
  if (i > 0 && fragments_[i - 1].owner == kGap) --first;
  if (last < fragments_.size() && fragments_[last].owner == kGap) ++last;
  if (last - first == 1) return;
  fragments_[first].size = fragments_[last - 1].offset + fragments_[last - 1].size - fragments_[first].offset;
  fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                   fragments_.begin() + static_cast<std::ptrdiff_t>(last));
}

Bytes Arena::largest_gap() const {
  Bytes largest = 0;
  for (const Fragment& f : fragments_)
    if (f.owner == kGap) largest = std::max(largest, f.size);
  return largest;
}

std::size_t Arena::index_of(Bytes offset) const {
  const auto it = std::lower_bound(fragments_.begin(), fragments_.end(), offset,
                                   [](const Fragment& f, Bytes o) { return f.offset < o; });
  if (it == fragments_.end() || it->offset != offset) throw std::logic_error("arena: no fragment starts there");
  return static_cast<std::size_t>(it - fragments_.begin());
}

void Arena::check() const {
  Bytes at = 0, used = 0;
  bool gap_before = false;
  for (const Fragment& f : fragments_) {
    const bool gap = f.owner == kGap;
    if (f.offset != at || f.size == 0) throw std::logic_error("arena: fragments overlap or leave a hole");
    if (gap && gap_before) throw std::logic_error("arena: two gaps side by side");
    gap_before = gap;
    at += f.size;
    if (!gap) used += f.size;
  }
  if (at != capacity_ || used != used_) throw std::logic_error("arena: bytes do not add up");
}

}  // namespace ebb::policy
