#pragma once
// What `collect` decides, from what a store holds: nothing is read or written here.
#include <map>
#include <set>

#include "storage/admin/collect.hpp"

namespace ebb::storage {

/// What becomes of one segment.
struct SegmentPlan {
  std::uint64_t segment = 0;
  bool remove = false;                       // the file goes
  bool write_head = false;                   // the segment's own, which is damaged
  std::vector<RecordHead> again;             // heads of waste, as they are: they may be so in memory alone
  std::vector<RecordHead> drops;             // of what goes: as they will be
  std::vector<ScannedSegment::Gap> nothing;  // places that get a head of nothing
  std::vector<ScannedSegment::Gap> punch;    // all but the first block of these
  std::uint64_t end = 0;                     // the file is cut here
  std::uint64_t bytes_after = 0;             // on the disk, at most
};

struct CollectPlan {
  std::vector<RecordHead> first;  // of superseded ones: gone for good before what counts in their place goes
  std::vector<SegmentPlan> segments;
  std::vector<admin::Removal> removals;
  std::vector<InspectedDamage> damages;  // that stay
};

/// `bad`: records whose payload was read and is damaged, by place in `records`, and what is wrong.
/// `retired`: those that retention lets go, likewise.
CollectPlan plan_collection(const Inspection& store, const std::map<std::size_t, Damage>& bad,
                            const std::set<std::size_t>& retired, bool remove_damaged);

}  // namespace ebb::storage
