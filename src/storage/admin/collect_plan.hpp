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
  std::vector<Drop> listed;                  // the same of what shares blocks: in a list behind all records
  std::uint64_t list_at = 0;                 // where the file is cut for that list, if there is one
  std::vector<ScannedSegment::Gap> punch;    // free all but the first block of these
  std::uint64_t end = 0;                     // truncate the file here
  std::uint64_t bytes_after = 0;             // on the disk, at most

  void drop(const RecordHead& head) {
    if (head.shares_block())
      listed.push_back({head.place.offset, head.kind});
    else
      drops.push_back(head);
  }
};

struct CollectPlan {
  // Tombstones of superseded records, and of maps of snapshots whose pieces go: synced before others are removed.
  std::vector<RecordHead> first;
  std::vector<SegmentPlan> segments;
  std::vector<admin::Removal> removals;
  std::vector<InspectedDamage> damages;  // that remain
};

/// `bad`: records whose payload is damaged, by index in `records`, with the damage.
/// `going`: those that are removed for another reason than damage, and why.
CollectPlan plan_collection(const Inspection& store, const std::map<std::size_t, Damage>& bad,
                            const std::map<std::size_t, admin::Removal::Why>& going, bool remove_damaged);

}  // namespace ebb::storage
