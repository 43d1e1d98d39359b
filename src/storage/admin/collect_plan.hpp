#pragma once
// What `collect` decides about a store. No I/O here.
#include <map>
#include <set>

#include "storage/admin/collect.hpp"

namespace ebb::storage {

/// The plan for one segment.
struct SegmentPlan {
  std::uint64_t segment = 0;
  bool remove = false;                       // remove the file
  bool write_head = false;                   // rewrite the segment's own head, which is damaged
  std::vector<RecordHead> again;             // heads of waste to rewrite as they are: they may be only in memory
  std::vector<RecordHead> drops;             // tombstones to write
  std::vector<ScannedSegment::Gap> nothing;  // places to mark as void
  std::vector<ScannedSegment::Gap> punch;    // free all but the first block of these
  std::uint64_t end = 0;                     // truncate the file here
  std::uint64_t bytes_after = 0;             // on the disk, at most
};

struct CollectPlan {
  std::vector<RecordHead> first;  // tombstones of superseded records, synced before the valid ones are removed
  std::vector<SegmentPlan> segments;
  std::vector<admin::Removal> removals;
  std::vector<InspectedDamage> damages;  // that remain
};

/// `bad`: records whose payload is damaged, by index in `records`, with the damage.
/// `retired`: indexes of those that retention removes.
CollectPlan plan_collection(const Inspection& store, const std::map<std::size_t, Damage>& bad,
                            const std::set<std::size_t>& retired, bool remove_damaged);

}  // namespace ebb::storage
