#pragma once
// What is where in a memory tier: a row of segments, each a row of fragments (a replica or a gap) without overlap or
// hole. No fragment spans two segments.
//
// A segment is memory that was lent to the tier. It may end earlier than it did: beyond its end are replicas placed
// there before, until they leave, and no gap. It may be lent again, up to its extent. Offsets count from the tier's
// first byte; a segment's never change.
//
// A fragment of a granule or more begins at a multiple of the granule. Smaller ones, which are multiples of the grain,
// share granules.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/ids.hpp"
#include "planner/recycled.hpp"

namespace ebb::planner {

class FragmentMap {
 public:
  static constexpr std::uint32_t kGap = UINT32_MAX;
  struct Fragment {
    Bytes offset = 0;
    Bytes size = 0;
    std::uint32_t owner = kGap;
  };

  explicit FragmentMap(Bytes granule) : FragmentMap(granule, granule) {}
  // A granule is a multiple of a grain.
  FragmentMap(Bytes granule, Bytes grain) : granule_(granule), grain_(grain) {}

  // A new segment (the next number), whose extent is `bytes`, or an old one: `bytes` of it can be used, no fewer than
  // now.
  void lend(SegmentId segment, Bytes bytes);
  // The segment ends after `bytes`, no later than now; what is beyond or across that stays where it is.
  void recall(SegmentId segment, Bytes bytes);

  // `bytes` rounded up to the granule, or to the grain if that is less; never 0, so that each replica has a place of
  // its own.
  Bytes footprint(Bytes bytes) const {
    const Bytes unit = bytes + grain_ > granule_ ? granule_ : grain_;
    return std::max<Bytes>(unit, (bytes + unit - 1) / unit * unit);
  }

  // Places `owner` in the smallest gap that holds `size` (a footprint); none: no gap does. What is smaller than a
  // granule goes to a gap that has no whole granule, if one holds it, else to a ragged end of the smallest that has.
  std::optional<Bytes> place(std::uint32_t owner, Bytes size);
  // Makes the fragment that starts at `offset` a gap, merged with its neighbours; beyond its segment's end it goes.
  void erase(Bytes offset);

  using Fragments = RecycledMap<Bytes, Fragment>;  // by offset
  const Fragments& fragments() const { return fragments_; }
  Fragments::const_iterator find(Bytes offset) const;  // of the fragment that starts there
  // The first owner of a fragment that starts from `at` on and before `end`, and moves `at` past it. kGap: there is
  // none.
  std::uint32_t next_owner(Bytes& at, Bytes end) const;
  std::size_t segments() const { return segments_.size(); }
  SegmentId segment_of(Bytes offset) const { return segments_.size() == 1 ? 0 : find_segment(offset); }
  Bytes first_of(SegmentId segment) const { return segments_.at(segment).first; }
  Bytes lent() const { return lent_; }  // as it was said
  Bytes capacity() const;               // that can be placed in: whole granules
  Bytes largest_segment() const;        // the same, of one segment
  Bytes used() const { return used_; }  // beyond the ends as well
  Bytes free() const { return free_; }
  // The largest footprint that a gap holds.
  Bytes largest_gap() const { return gaps_.empty() ? largest_narrow() : gaps_.rbegin()->first; }
  // Whether `size` (a footprint) has a place in so many bytes from `offset` on.
  bool holds(Bytes offset, Bytes bytes, Bytes size) const {
    return size < granule_ ? bytes >= size : whole_granules(offset, offset + bytes) >= size;
  }
  Bytes granule() const { return granule_; }
  Bytes grain() const { return grain_; }
  // The bytes of a fragment that lie before its segment's end.
  Bytes usable(const Fragment& f) const;
  // Whether anything can be beyond the end of a segment.
  bool shortened() const { return shortened_ > 0; }
  bool beyond(Bytes offset, Bytes size) const { return offset + size > segments_[segment_of(offset)].end; }
  // The owners of fragments beyond or across the end of a segment: segment by segment, the last of each first.
  std::vector<std::uint32_t> owners_beyond() const;
  std::vector<std::uint32_t> owners_beyond(SegmentId segment) const;
  void check() const;  // throws std::logic_error

 private:
  struct Segment {
    Bytes first = 0, extent = 0;
    Bytes lent = 0;
    Bytes end = 0;  // of its whole granules
    bool shortened() const { return end != first + extent; }
  };
  using Iterator = Fragments::const_iterator;
  SegmentId find_segment(Bytes offset) const;
  std::pair<Iterator, Iterator> fragments_of(const Segment& segment) const;
  void set_end(Segment& segment, Bytes bytes);
  Bytes whole_granules(Bytes begin, Bytes end) const {
    begin = round_up(begin), end = end / granule_ * granule_;
    return begin < end ? end - begin : 0;
  }
  Bytes round_up(Bytes offset) const { return (offset + granule_ - 1) / granule_ * granule_; }
  Bytes whole_granules(const Fragment& f) const {
    return small_ == 0 ? f.size : whole_granules(f.offset, f.offset + f.size);
  }
  void insert_gap(const Fragment& f);
  void erase_gap(const Fragment& f);
  Bytes largest_narrow() const;
  std::optional<Bytes> place_small(std::uint32_t owner, Bytes size);
  Bytes put(std::uint32_t owner, Bytes size, Bytes offset, Fragment& gap);

  Bytes granule_, grain_;
  std::size_t small_ = 0;  // fragments smaller than a granule: without any, every gap is of whole granules
  Bytes used_ = 0, free_ = 0, lent_ = 0;
  std::vector<Segment> segments_;  // by number, which is by place
  std::size_t shortened_ = 0;      // segments that end before their extent does
  Fragments fragments_;
  using Gaps = RecycledSet<std::pair<Bytes, Bytes>>;
  Gaps gaps_;    // (bytes of the granules in it, offset) of each gap that has any
  Gaps narrow_;  // (size, offset) of each other
};

}  // namespace ebb::planner
