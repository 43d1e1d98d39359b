#pragma once
// Memory that was needed sooner than its registration came, and is used unpinned: what of it is pinned next, and when.
#include <vector>

#include "planner/growth_range.hpp"

namespace ebb::policy {

// Not thread-safe; deterministic. Time does not go back.
// 1. Round and round, in ascending order: what a transfer uses is passed over.
// 2. While copies run, one each `pin_deadline` at most. After a try in vain none is made for `pause`, then for twice as
// long,
//    64 times at most, until one was pinned: a turn that brings nothing costs others theirs.
class GrowthLater {
 public:
  GrowthLater(Time pin_deadline, Time pause) : patience_(pin_deadline), pause_(pause) {}

  bool empty() const { return ranges_.empty(); }
  // In use from now on; behind all that came before.
  void add(const ByteRange& range, Time now);
  // Part of one of them. What lies in none of them is no matter.
  void pinned(const ByteRange& range, Time now);
  // A transfer that had begun before uses it.
  void busy(const ByteRange& range, Time now);
  // A turn came that was asked for this, and there was nothing to use it for.
  void in_vain(Time now);
  // A registration, of whatever, held up the program for `took`: none of these for fifty times as long.
  void slow(Time took, Time now);

  // Of at most `piece` bytes; not empty().
  ByteRange next(Bytes piece) const;
  // Not before.
  Time when(bool copies_run) const;

 private:
  Time patience_, pause_;
  std::vector<ByteRange> ranges_;  // ascending, apart from each other
  Bytes from_ = 0;                 // where the next is looked for
  Time at_ = 0;                    // none is pinned before
  Time due_ = 0;                   // then one is, though a copy runs
  int in_vain_ = 0;                // tries, one after another
};

}  // namespace ebb::policy
