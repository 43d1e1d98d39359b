#include "storage/segments/crash_repair.hpp"

#include <algorithm>
#include <cerrno>

#include "storage/format/bytes.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {

using os::kBlock;

namespace {

// The block of an offset has lists of drops, and so nothing else: what is missing of it dropped nothing.
bool is_of_lists(const ScannedSegment& segment, std::uint64_t offset) {
  return std::ranges::any_of(segment.waste, [&](const ScannedSegment::Stretch& place) {
    return place.head && place.head->kind == RecordHead::Kind::drops && place.offset / kBlock == offset / kBlock;
  });
}

// What is left of a gap without the parts of blocks of lists.
ScannedSegment::Gap without_lists(const ScannedSegment& segment, std::uint64_t offset, std::uint64_t end) {
  if (offset % kBlock != 0 && is_of_lists(segment, offset)) offset = std::min(end, os::round_up(offset));
  if (end > offset && end % kBlock != 0 && is_of_lists(segment, end)) end = std::max(offset, end / kBlock * kBlock);
  return {offset, end - offset};
}

// A header, and a block of compact records, is written in one piece: if a head's sector is zero and another of its
// block is not, the head was lost, or torn by a power loss. The data after it is not discarded. So a place that begins
// or ends within a block has lost a head: records fill their blocks.
void find_lost_heads(StoreContext& context, ObjectTable& table, RecordRemover& remover, const ScannedSegment& segment,
                     SegmentState& ours, std::vector<Damage>& damages) {
  if (ours.suspect) return;
  std::vector<ScannedSegment::Gap> places = segment.gaps;
  if (segment.end < segment.bytes) places.push_back({segment.end, os::round_up(segment.bytes) - segment.end});
  for (const ScannedSegment::Gap& place : places) {
    const auto [offset, length] = without_lists(segment, place.offset, place.offset + place.length);
    if (length == 0) continue;
    const std::uint64_t end = offset + length;
    std::uint64_t lost = offset;
    bool known = true;
    if (offset % kBlock == 0) {
      AlignedBytes block(kBlock);
      std::fill_n(block.data(), kBlock, std::byte{0});
      auto file = context.segment_files.open(segment.segment);
      const auto got = file ? read_whole(context.files, (*file)->fd(), block.first(kBlock), offset, (*file)->direct())
                            : os::SysResult::of(0);
      known = static_cast<bool>(got);
      const bool zeros = known && all_zero(block.first(kBlock));
      if (zeros && end % kBlock == 0) continue;
      if (zeros) lost = end / kBlock * kBlock;
    }
    const TableLocked lock = table.lock();
    ours.suspect = true;
    if (!known) remover.retain_segments(lock);
    damages.push_back({context.segment_files.path(segment.segment), lost,
                       !known ? unreadable()
                              : "a record seems to have lost its first sector: " + std::to_string(end - lost) +
                                    " bytes are left as they are",
                       !known});
  }
}

// The index is kept under another name: after a crash it shows which heads existed.
Result<void> set_index_aside(StoreContext& context) {
  const std::filesystem::path& directory = context.directory.path();
  const auto index = directory / kIndexFile, beside = directory / kNewIndexFile;
  const auto renamed = context.files.rename(index, directory / kOldIndexFile);
  if (!renamed && renamed.error != ENOENT) return file_error(index, "renaming it", renamed.error);
  const auto removed = context.files.remove(beside);
  if (!removed && removed.error != ENOENT) return file_error(beside, "removing it", removed.error);
  if (!renamed && !removed) return {};
  const auto synced = context.files.sync_directory(directory);
  if (!synced) return file_error(directory, "syncing it", synced.error);
  return {};
}

// Marks places that were allocated and never filled, so that a scan steps over them: they are whole blocks, or the
// segment is suspect. If that fails, the next scan only takes longer.
void close_gaps(StoreContext& context, const ScannedSegment& segment) {
  if (segment.gaps.empty()) return;
  auto file = context.segment_files.open(segment.segment);
  if (!file) return;
  for (const ScannedSegment::Gap& gap : segment.gaps) {
    const auto [offset, length] = without_lists(segment, gap.offset, gap.offset + gap.length);
    if (length == 0) continue;
    const RecordHead head{.kind = RecordHead::Kind::nothing,
                          .place = {context.directory.head().store, segment.segment, offset},
                          .record_bytes = length};
    AlignedBytes block(kBlock);
    std::fill_n(block.data(), kBlock, std::byte{0});
    std::ranges::copy(encode(head), block.data());
    if (!write_whole(context.files, (*file)->fd(), block.first(kBlock), offset, (*file)->direct())) continue;
    if (length > kBlock) {
      static_cast<void>(context.files.punch((*file)->fd(), offset + kBlock, length - kBlock));
    }
  }
}

// What a killed process wrote and never synced: the scan found it on the disk, or decided that there is nothing. No
// later scan may decide otherwise. If a head cannot be rewritten, all stays that its record, which is not offered, may
// hide.
Result<void> settle_heads(StoreContext& context, ObjectTable& table, RecordRemover& remover,
                          const ScannedSegment& segment, std::vector<SharedObject>& outdated,
                          std::vector<Damage>& damages) {
  std::vector<RecordHead> heads;
  for (const ScannedRecord& record : segment.records)
    if (record.settled) heads.push_back(record.head);
  for (const ScannedSegment::Stretch& place : segment.waste)
    if (place.settled) heads.push_back(*place.head);
  if (heads.empty()) return {};
  auto file = context.segment_files.open(segment.segment);
  if (!file) return file.error();
  for (const RecordHead& head : heads) {
    const std::uint64_t offset = head.place.offset;
    AlignedBytes block(kBlock);
    auto done = read_whole(context.files, (*file)->fd(), block.first(kBlock), offset, (*file)->direct());
    if (done) {
      std::ranges::copy(encode(head), block.data());
      done = write_whole(context.files, (*file)->fd(), block.first(kBlock), offset, (*file)->direct());
    }
    if (done) continue;
    const TableLocked lock = table.lock();
    SegmentState& ours = *table.segments(lock).at(segment.segment);
    ours.suspect = true;
    remover.retain_segments(lock);
    table.invalidate_index(lock);
    damages.push_back(
        {context.segment_files.path(segment.segment), offset,
         "the head of a record that was not synced cannot be rewritten: " + os::describe_errno(done.error)});
    const SharedObject object = ours.records.find(offset);
    if (!object) continue;
    table.remove(lock, object->id);
    std::erase_if(outdated, [&](const SharedObject& one) {
      return one->history == object->history && one->head.version == object->head.version;
    });
  }
  return context.sync(segment.segment, **file);
}

}  // namespace

// The index is removed first, because it is about to be out of date. Outdated records are dropped before the newer ones
// are offered: if the header of one of those decayed, the old bytes must not reappear. They get tombstones, even if
// their segment is about to be removed, before any segment is removed whose tombstones hide them.
Result<std::vector<Damage>> repair_after_crash(StoreContext& context, ObjectTable& table, RecordRemover& remover,
                                               const ScannedStore& scanned, std::vector<SharedObject> outdated) {
  if (auto removed = set_index_aside(context); !removed) return removed.error();
  std::vector<Damage> damages;
  for (const ScannedSegment& segment : scanned.segments) {
    if (auto settled = settle_heads(context, table, remover, segment, outdated, damages); !settled)
      return settled.error();
  }
  for (const ScannedSegment& segment : scanned.segments) {
    const SharedSegment ours = table.segments(table.lock()).at(segment.segment);
    find_lost_heads(context, table, remover, segment, *ours, damages);
    const bool whole = [&] {
      const TableLocked lock = table.lock();
      return ours->records.empty() && remover.is_removable(lock, *ours);
    }();
    bool cut = false;
    if (!ours->suspect && !whole) {  // or it is left as it is, or removed as a whole
      close_gaps(context, segment);
      if (segment.end >= segment.bytes) continue;
      auto file = context.segment_files.open(segment.segment);
      cut = file && context.files.truncate((*file)->fd(), segment.end);
    }
    const TableLocked lock = table.lock();
    if (cut)
      ours->bytes = ours->end;
    else  // drops are listed behind all that is there
      ours->end = std::max(ours->end, os::round_up(ours->bytes));
  }
  remover.drop(std::move(outdated), true);  // in lists behind what was looked at
  remover.remove_empty();
  context.directory.announce_change();
  return damages;
}

// Written under another name, then renamed.
void write_index(StoreContext& context, ObjectTable& table, const std::vector<Damage>& damages) {
  if (!context.directory.in_place()) return;
  const std::filesystem::path& directory = context.directory.path();
  ScannedStore store;
  std::map<std::uint64_t, SharedSegment> segments;
  {
    const TableLocked lock = table.lock();
    store.next_sequence = table.next(lock).sequence;
    segments = table.segments(lock);  // no longer change
  }
  store.head = context.directory.head();
  store.damages = damages;
  std::erase_if(store.damages, [&](const Damage& damage) { return damage.file == directory / kIndexFile; });
  for (const auto& [number, segment] : segments) {
    ScannedSegment& out = store.segments.emplace_back();
    os::FileStatus status;
    const auto known = context.files.status(context.segment_files.path(number), status);
    if (!known && known.error != ENOENT) return;
    out.segment = number;
    out.bytes = known ? status.bytes : segment->bytes;  // the next process reports a missing file
    out.end = segment->end;
    std::uint64_t living = 0;
    for (const SharedObject& object : segment->records.objects()) {
      out.records.push_back({object->record_head(), object->history});
      living += object->head.record_bytes;
    }
    out.dead = out.end - std::min(out.end, kBlock + living);
  }
  const auto beside = directory / kNewIndexFile;
  const std::vector<std::byte> bytes = encode_index(store);
  const auto opened = context.files.open(beside, os::Open::create, false);
  if (!opened) return;
  os::SysResult written;
  {
    const os::File file(context.files, static_cast<int>(opened.value), beside.string(), false);
    written = write_whole(context.files, file.fd(), bytes, 0);
    if (written && context.options.synced) written = context.files.sync(file.fd());
  }
  // The index's name need not be synced: if a power loss takes it, the segments hold the same information.
  if (written) written = context.files.rename(beside, directory / kIndexFile);
  static_cast<void>(context.files.remove(written ? directory / kOldIndexFile : beside));
}

}  // namespace ebb::storage
