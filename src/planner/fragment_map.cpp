#include "planner/fragment_map.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::planner {

void FragmentMap::lend(SegmentId segment, Bytes bytes) {
  if (segment > segments_.size()) throw std::logic_error("fragment map: a segment was left out");
  if (segment == segments_.size()) {
    const Bytes first = segments_.empty() ? 0 : segments_.back().first + segments_.back().extent;
    segments_.push_back({first, (bytes + granule_ - 1) / granule_ * granule_, 0, first});
    shortened_ += segments_.back().shortened() ? 1 : 0;
  }
  Segment& s = segments_[segment];
  if (bytes < s.lent || bytes > s.extent) throw std::logic_error("fragment map: more than a segment's extent was lent");
  set_end(s, bytes);
}

void FragmentMap::recall(SegmentId segment, Bytes bytes) {
  Segment& s = segments_.at(segment);
  if (bytes > s.lent) throw std::logic_error("fragment map: more was left of a segment than there was");
  set_end(s, bytes);
}

// Changes the end of a segment, and makes its gaps anew.
void FragmentMap::set_end(Segment& segment, Bytes bytes) {
  lent_ += bytes - segment.lent;
  segment.lent = bytes;
  shortened_ -= segment.shortened() ? 1 : 0;
  segment.end = segment.first + bytes / granule_ * granule_;
  shortened_ += segment.shortened() ? 1 : 0;
  const auto [begin, end] = fragments_of(segment);
  std::vector<Fragment> stay;
  for (auto f = begin; f != end; ++f) {
    if (f->second.owner != kGap) {
      stay.push_back(f->second);
      continue;
    }
    erase_gap(f->second);
    free_ -= f->second.size;
  }
  fragments_.erase(begin, end);
  Bytes at = segment.first;
  const auto gap_before = [&](Bytes offset) {
    const Bytes until = std::min(offset, segment.end);
    if (until <= at) return;
    const Fragment gap{at, until - at, kGap};
    fragments_.emplace(at, gap);
    insert_gap(gap);
    free_ += until - at;
  };
  for (const Fragment& f : stay) {
    gap_before(f.offset);
    fragments_.emplace(f.offset, f);
    at = f.offset + f.size;
  }
  gap_before(segment.end);
}

void FragmentMap::insert_gap(const Fragment& f) {
  const Bytes whole = whole_granules(f);
  (whole > 0 ? gaps_ : narrow_).insert({whole > 0 ? whole : f.size, f.offset});
}

void FragmentMap::erase_gap(const Fragment& f) {
  const Bytes whole = whole_granules(f);
  (whole > 0 ? gaps_ : narrow_).erase({whole > 0 ? whole : f.size, f.offset});
}

Bytes FragmentMap::largest_narrow() const {
  return narrow_.empty() ? 0 : std::min(narrow_.rbegin()->first, granule_ - grain_);
}

std::optional<Bytes> FragmentMap::place(std::uint32_t owner, Bytes size) {
  if (size < granule_) return place_small(owner, size);
  const auto found = gaps_.lower_bound({size, 0});
  if (found == gaps_.end()) return std::nullopt;
  const Bytes gap = found->second;
  return put(owner, size, small_ == 0 ? gap : round_up(gap), fragments_.at(gap));
}

std::optional<Bytes> FragmentMap::place_small(std::uint32_t owner, Bytes size) {
  const auto found = narrow_.lower_bound({size, 0});
  if (found == narrow_.end() && gaps_.empty()) return std::nullopt;
  ++small_;
  if (found != narrow_.end()) return put(owner, size, found->second, fragments_.at(found->second));
  const auto [whole, offset] = *gaps_.begin();
  Fragment& gap = fragments_.at(offset);
  const Bytes first = round_up(offset), tail = offset + gap.size - (first + whole);
  if (first - offset >= size) return put(owner, size, offset, gap);
  return put(owner, size, tail >= size ? first + whole : first, gap);
}

// Puts a fragment into a gap, which keeps what is before `offset`.
Bytes FragmentMap::put(std::uint32_t owner, Bytes size, Bytes offset, Fragment& gap) {
  erase_gap(gap);
  const Fragment rest{offset + size, gap.offset + gap.size - (offset + size), kGap};
  if (offset > gap.offset) {
    gap.size = offset - gap.offset;
    insert_gap(gap);
    fragments_.emplace(offset, Fragment{offset, size, owner});
  } else {
    gap.size = size;
    gap.owner = owner;
  }
  used_ += size;
  free_ -= size;
  if (rest.size > 0) {
    fragments_.emplace(rest.offset, rest);
    insert_gap(rest);
  }
  return offset;
}

void FragmentMap::erase(Bytes offset) {
  auto at = fragments_.find(offset);
  if (at == fragments_.end() || at->second.owner == kGap) throw std::logic_error("fragment map: erased a gap");
  used_ -= at->second.size;
  const bool small = at->second.size < granule_;
  at->second.size = usable(at->second);
  if (at->second.size == 0) {
    fragments_.erase(at);
    small_ -= small ? 1 : 0;
    return;
  }
  free_ += at->second.size;
  at->second.owner = kGap;
  const SegmentId segment = segment_of(offset);
  const auto joins = [&](const Fragment& f) { return f.owner == kGap && segment_of(f.offset) == segment; };
  if (const auto after = std::next(at); after != fragments_.end() && joins(after->second)) {
    erase_gap(after->second);
    at->second.size += after->second.size;
    fragments_.erase(after);
  }
  if (at != fragments_.begin() && joins(std::prev(at)->second)) {
    const auto before = std::prev(at);
    erase_gap(before->second);
    before->second.size += at->second.size;
    fragments_.erase(at);
    at = before;
  }
  insert_gap(at->second);
  small_ -= small ? 1 : 0;
}

SegmentId FragmentMap::find_segment(Bytes offset) const {
  const auto after = std::ranges::upper_bound(segments_, offset, {}, &Segment::first);
  return static_cast<SegmentId>(after - segments_.begin() - 1);
}

Bytes FragmentMap::capacity() const {
  Bytes all = 0;
  for (const Segment& s : segments_) all += s.end - s.first;
  return all;
}

Bytes FragmentMap::largest_segment() const {
  Bytes largest = 0;
  for (const Segment& s : segments_) largest = std::max(largest, s.end - s.first);
  return largest;
}

Bytes FragmentMap::usable(const Fragment& f) const {
  if (!shortened()) return f.size;
  const Bytes end = segments_[segment_of(f.offset)].end;
  return f.offset >= end ? 0 : std::min(f.size, end - f.offset);
}

std::vector<std::uint32_t> FragmentMap::owners_beyond() const {
  std::vector<std::uint32_t> owners;
  if (!shortened()) return owners;
  for (std::size_t s = 0; s < segments_.size(); ++s)
    for (const std::uint32_t owner : owners_beyond(static_cast<SegmentId>(s))) owners.push_back(owner);
  return owners;
}

std::vector<std::uint32_t> FragmentMap::owners_beyond(SegmentId segment) const {
  const Segment& s = segments_.at(segment);
  std::vector<std::uint32_t> owners;
  if (!s.shortened()) return owners;
  const auto [begin, end] = fragments_of(s);
  for (auto f = end; f != begin; --f) {
    const Fragment& last = std::prev(f)->second;
    if (last.offset + last.size <= s.end) break;
    owners.push_back(last.owner);
  }
  return owners;
}

std::pair<FragmentMap::Iterator, FragmentMap::Iterator> FragmentMap::fragments_of(const Segment& segment) const {
  return {fragments_.lower_bound(segment.first), fragments_.lower_bound(segment.first + segment.extent)};
}

FragmentMap::Fragments::const_iterator FragmentMap::find(Bytes offset) const {
  const auto it = fragments_.find(offset);
  if (it == fragments_.end()) throw std::logic_error("fragment map: no fragment starts there");
  return it;
}

std::uint32_t FragmentMap::next_owner(Bytes& at, Bytes end) const {
  for (auto f = fragments_.lower_bound(at); f != fragments_.end() && f->first < end; ++f) {
    at = f->first + 1;
    if (f->second.owner != kGap) return f->second.owner;
  }
  return kGap;
}

void FragmentMap::check() const {
  Bytes used = 0, free = 0, lent = 0;
  std::size_t counted = 0, gaps = 0, shortened = 0, small = 0;
  for (const Segment& s : segments_) {
    const auto [begin, end] = fragments_of(s);
    Bytes at = s.first;
    bool gap_before = false;
    for (auto it = begin; it != end; ++it, ++counted) {
      const Fragment* const f = &it->second;
      if (it->first != f->offset) throw std::logic_error("fragment map: a fragment is in another's place");
      const bool gap = f->owner == kGap;
      if (f->offset < at || f->size == 0 || (f->offset > at && at < s.end))
        throw std::logic_error("fragment map: fragments overlap or leave a hole");
      if (f->offset + f->size > s.first + s.extent)
        throw std::logic_error("fragment map: a fragment spans two segments");
      if (gap && f->offset + f->size > s.end) throw std::logic_error("fragment map: a gap beyond the end");
      if (gap && gap_before) throw std::logic_error("fragment map: two gaps side by side");
      const Bytes whole = whole_granules(f->offset, f->offset + f->size);
      if (gap && !(whole > 0 ? gaps_ : narrow_).contains({whole > 0 ? whole : f->size, f->offset}))
        throw std::logic_error("fragment map: a gap is not indexed");
      if (!gap && f->offset % (f->size < granule_ ? grain_ : granule_) != 0)
        throw std::logic_error("fragment map: a fragment begins within a granule");
      gap_before = gap;
      gaps += gap;
      small += !gap && f->size < granule_;
      at = f->offset + f->size;
      (gap ? free : used) += f->size;
    }
    if (at < s.end) throw std::logic_error("fragment map: bytes do not add up");
    lent += s.lent;
    shortened += s.shortened() ? 1 : 0;
  }
  if (shortened != shortened_) throw std::logic_error("fragment map: segments that end early are counted wrong");
  if (small != small_) throw std::logic_error("fragment map: small fragments are counted wrong");
  if (counted != fragments_.size()) throw std::logic_error("fragment map: a fragment is in no segment");
  if (gaps != gaps_.size() + narrow_.size()) throw std::logic_error("fragment map: the index of gaps is stale");
  if (used != used_ || free != free_ || lent != lent_) throw std::logic_error("fragment map: bytes do not add up");
}

}  // namespace ebb::planner
