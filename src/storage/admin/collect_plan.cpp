#include "storage/admin/collect_plan.hpp"

#include <algorithm>

#include "storage/admin/snapshot_pieces.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {
namespace {

using os::kBlock;
using Gap = ScannedSegment::Gap;
using admin::Removal;
using Why = Removal::Why;

// One segment's own part of the plan.
class SegmentPlanner {
 public:
  SegmentPlanner(const Inspection& store, const ScannedSegment& segment, bool remove_damaged, CollectPlan& plan)
      : segment_(segment),
        path_(segment_path(store.directory, segment.segment)),
        remove_damaged_(remove_damaged),
        hides_(may_come_back(store.scanned.damages)),
        plan_(plan) {
    out_.segment = segment.segment;
    out_.end = segment.end;
    for (const InspectedDamage& one : store.damages) {
      if (one.damage.file == path_) damages_.emplace(one.damage.offset, &one);
    }
  }

  // `dying`: offsets of records to remove.
  SegmentPlan run(const std::set<std::uint64_t>& dying, bool highest) {
    bool lives = false;
    std::uint64_t kept = kBlock;
    for (const ScannedRecord& record : segment_.records) {
      if (dying.contains(record.head.place.offset)) {
        out_.drop(tombstone(record.head, record.history));
        drop(record.head.place.offset, record.head.record_bytes);
        kept += std::min(kBlock, record.head.record_bytes);
      } else {
        if (record.settled) out_.again.push_back(record.head);
        lives = true;
        kept += record.head.record_bytes;
      }
    }
    for (const ScannedSegment::Stretch& place : segment_.waste) {
      if (place.head && !place.head->shares_block() && place.head->kind != RecordHead::Kind::drops)
        out_.again.push_back(*place.head);
      drop(place.offset, place.length);
      kept += std::min(kBlock, place.length);
    }
    for (const Gap& gap : segment_.gaps) {
      if ((is_damaged(gap) || borders_on_damage(gap)) && !remove_damaged_) {
        lives = true;
        kept += gap.length;
        continue;
      }
      abandon(gap.offset, gap.length);
      kept += std::min(kBlock, gap.length);
    }
    for (const ScannedSegment::Stretch& place : segment_.damaged) {
      if (!remove_damaged_) {
        lives = true;
        kept += place.length;
        continue;
      }
      remove(place);
      kept += std::min(kBlock, place.length);
    }
    const std::uint64_t behind = os::round_up(last_end());
    out_.end = std::min(out_.end, behind);
    if (const Gap tail{behind, segment_.bytes - std::min(segment_.bytes, behind)};
        !remove_damaged_ && is_damaged(tail)) {
      lives = true;
      out_.end = segment_.bytes;
      kept += tail.length;
    }
    out_.list_at = os::round_up(out_.end);
    const bool head_damaged = is_damaged({0, 1});
    out_.write_head = head_damaged && remove_damaged_;
    lives = lives || (head_damaged && !remove_damaged_);
    const bool goes = !lives && !hides_;
    out_.remove = goes && !highest;
    if (goes) {
      out_.drops.clear();
      out_.nothing.clear();
      out_.listed.clear();
      out_.punch.clear();
      out_.end = kBlock;
      kept = highest ? kBlock : 0;
    }
    out_.bytes_after = kept;
    return std::move(out_);
  }

 private:
  // Beyond everything that the scan recognised: a damaged head there may hide more.
  std::uint64_t last_end() const {
    std::uint64_t end = kBlock;
    for (const ScannedRecord& record : segment_.records) {
      end = std::max(end, record.head.place.offset + record.head.record_bytes);
    }
    for (const auto* places : {&segment_.waste, &segment_.damaged}) {
      for (const ScannedSegment::Stretch& place : *places) end = std::max(end, place.offset + place.length);
    }
    return end;
  }

  // The start of a damaged record may itself be wrong.
  bool borders_on_damage(const Gap& gap) const {
    return std::ranges::any_of(segment_.damaged, [&](const ScannedSegment::Stretch& place) {
      return place.offset == gap.offset + gap.length;
    });
  }
  void drop(std::uint64_t offset, std::uint64_t length) {
    if (length > kBlock) out_.punch.push_back({offset, length});
  }
  // Each part of a block, and what is whole blocks, gets a head of its own.
  void abandon(std::uint64_t offset, std::uint64_t length) {
    std::uint64_t end = offset + length;
    if (end >= segment_.bytes) {  // the last blocks need no head
      end = os::round_up(offset);
      out_.end = std::min(out_.end, end);
    }
    while (offset < end) {
      const std::uint64_t whole = (end - offset) / kBlock * kBlock;
      const bool within = offset % kBlock != 0 || whole == 0;
      const std::uint64_t part = within ? std::min(end, os::round_up(offset + 1)) - offset : whole;
      if (within)
        out_.listed.push_back({offset, RecordHead::Kind::nothing});
      else
        out_.nothing.push_back({offset, part});
      drop(offset, part);
      offset += part;
    }
  }

  void remove(const ScannedSegment::Stretch& place) {
    Removal removal{Why::damaged, {}, {}, path_, place.offset, place.length};
    if (const auto found = damages_.find(place.offset); found != damages_.end()) {
      removal.history = found->second->history;
      removal.version = found->second->version;
    }
    if (place.head) {
      RecordHead head = *place.head;
      head.kind = RecordHead::Kind::dropped;  // only the body named its history
      out_.drop(head);
      drop(place.offset, place.length);
    } else {
      abandon(place.offset, place.length);
    }
    plan_.removals.push_back(std::move(removal));
  }

  bool is_damaged(const Gap& gap) const {
    const auto first = damages_.lower_bound(gap.offset);
    return first != damages_.end() && first->first - gap.offset < gap.length;
  }

  const ScannedSegment& segment_;
  const std::filesystem::path path_;
  const bool remove_damaged_;
  const bool hides_;  // unreadable data may be older records, hidden by the tombstones here
  CollectPlan& plan_;
  std::map<std::uint64_t, const InspectedDamage*> damages_;  // in it, by offset
  SegmentPlan out_;
};

}  // namespace

CollectPlan plan_collection(const Inspection& store, const std::map<std::size_t, Damage>& bad,
                            const std::map<std::size_t, admin::Removal::Why>& going, bool remove_damaged) {
  CollectPlan plan;
  if (!remove_damaged) plan.damages = store.damages;
  std::map<std::uint64_t, std::set<std::uint64_t>> dying;  // offsets by segment
  // A map that stays, because its removal was cut short, must find its pieces.
  const bool pieces_go =
      std::ranges::any_of(going, [&](const auto& one) { return is_snapshot_piece(store.records[one.first]); });
  for (std::size_t i = 0; i < store.records.size(); ++i) {
    const Inspected& record = store.records[i];
    const RecordHead& head = record.head;
    const auto damage = bad.find(i);
    std::optional<Why> why;
    if (record.superseded) {
      why = Why::superseded;
      plan.first.push_back(tombstone(head, record.history));
    } else if (damage != bad.end() && remove_damaged) {
      why = Why::damaged;
    } else if (const auto goes = going.find(i); goes != going.end()) {
      why = goes->second;
    } else if (damage != bad.end()) {
      plan.damages.push_back({damage->second, record.history, head.version});
    }
    if (!why) continue;
    const bool may_be_map = head.regions == 2 && !is_snapshot_piece(record);
    if (pieces_go && may_be_map && !record.superseded) plan.first.push_back(tombstone(head, record.history));
    dying[head.place.segment].insert(head.place.offset);
    plan.removals.push_back({*why, record.history, head.version, segment_path(store.directory, head.place.segment),
                             head.place.offset, head.record_bytes});
  }
  for (const ScannedSegment& segment : store.scanned.segments) {
    const bool highest = &segment == &store.scanned.segments.back();
    plan.segments.push_back(SegmentPlanner(store, segment, remove_damaged, plan).run(dying[segment.segment], highest));
    SegmentPlan& one = plan.segments.back();
    const auto first = static_cast<std::size_t>(std::ranges::count_if(plan.first, [&](const RecordHead& head) {
      return head.shares_block() && head.place.segment == segment.segment;
    }));
    if (!one.listed.empty()) one.bytes_after += drops_bytes(first) + drops_bytes(one.listed.size() - first);
  }
  return plan;
}

}  // namespace ebb::storage
