#include "storage/segments/crash_repair.hpp"

#include <algorithm>

#include "storage/format/bytes.hpp"
#include "storage/scan/unreadable.hpp"
#include "storage/segments/store_index.hpp"

namespace ebb::storage {

using platform::kBlock;

namespace {

// A header is written as one: where its first sector is zeros and another one is not, the head was there, or a loss of
// power has torn it. What lies behind it is not taken away.
void find_lost_heads(StoreContext& context, ObjectTable& table, SpaceReclaimer& reclaimer,
                     const ScannedSegment& segment, KeptSegment& ours, std::vector<Damage>& damages) {
  if (ours.suspect) return;
  std::vector<ScannedSegment::Gap> places = segment.gaps;
  if (segment.end < segment.bytes) places.push_back({segment.end, segment.bytes - segment.end});
  for (const auto& [offset, length] : places) {
    AlignedBytes block(kBlock);
    std::fill_n(block.data(), kBlock, std::byte{0});
    auto file = context.segment_files.open(segment.segment);
    const auto got =
        file ? read_blocks(context.files, **file, block.first(kBlock), offset) : platform::SysResult::of(0);
    if (got && all_zero(block.first(kBlock))) continue;
    const Locked lock = table.lock();
    ours.suspect = true;
    if (!got) reclaimer.keep_segments(lock);
    damages.push_back({context.segment_files.path(segment.segment), offset,
                       !got ? unreadable()
                            : "a record seems to have lost its first sector: " + std::to_string(length) +
                                  " bytes are left as they are"});
  }
}

// Places that were given and never filled: from now on a scan steps over them. Where it cannot be written a scan looks
// there again, and no more is lost than time.
void close_gaps(StoreContext& context, const ScannedSegment& segment) {
  if (segment.gaps.empty()) return;
  auto file = context.segment_files.open(segment.segment);
  if (!file) return;
  for (const auto& [offset, length] : segment.gaps) {
    const RecordHead head{.kind = RecordHead::Kind::nothing,
                          .place = {context.directory.head().store, segment.segment, offset},
                          .record_bytes = length};
    AlignedBytes block(kBlock);
    std::fill_n(block.data(), kBlock, std::byte{0});
    std::ranges::copy(encode(head), block.data());
    if (!write_blocks(context.files, **file, block.first(kBlock), offset)) continue;
    if (length > kBlock) {
      static_cast<void>(context.files.punch((*file)->fd(), offset + kBlock, length - kBlock));
    }
  }
}

}  // namespace

// The index goes first, for from here on it does not say what there is. Older writings go before the newer ones are
// offered: were the mark of one of those to rot, its old bytes must not come back. They are marked, whatever becomes of
// their segment, before one goes that holds a drop which hides them.
Result<std::vector<Damage>> repair_after_crash(StoreContext& context, ObjectTable& table, SpaceReclaimer& reclaimer,
                                               const ScannedStore& scanned, std::vector<SharedObject> outdated) {
  if (auto removed = set_index_aside(context); !removed) return removed.error();
  std::vector<Damage> damages;
  reclaimer.drop(std::move(outdated), true);
  for (const ScannedSegment& segment : scanned.segments) {
    SharedSegment ours;
    bool removes = false;
    {
      const Locked lock = table.lock();
      ours = table.segments(lock).at(segment.segment);
    }
    find_lost_heads(context, table, reclaimer, segment, *ours, damages);
    {
      const Locked lock = table.lock();
      removes = segment.records.empty() && reclaimer.removes(lock, *ours);
    }
    if (ours->suspect || removes) continue;  // left as it is; or it goes as a whole
    close_gaps(context, segment);
    if (segment.end >= segment.bytes) continue;
    auto file = context.segment_files.open(segment.segment);
    if (file) static_cast<void>(context.files.truncate((*file)->fd(), segment.end));  // only space is lost otherwise
  }
  reclaimer.remove_empty();
  context.directory.tell_change();
  return damages;
}

}  // namespace ebb::storage
