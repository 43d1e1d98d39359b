#include "storage/segments/record_remover.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "storage/format/bytes.hpp"

namespace ebb::storage {

using os::kBlock;

namespace {

// A wrong index may name the place of another record, which must not be overwritten. A decayed head may be. One that
// was written early has the time of that.
Result<void> check_place(const StoredObject& object, std::span<const std::byte> block) {
  const RecordHead was = object.record_head();
  auto now = parse_head(block.first(kSector), was.place, UINT64_MAX);
  if (!now) return {};
  if (now->kind == RecordHead::Kind::written) {
    now = live_head(*now);
    now->written_ns = was.written_ns;
  }
  const bool ours = *now == was && is_named(block, *now, object.history);
  if (ours || is_tombstone_of(*now, was)) return {};
  return Error{Errc::damaged, object.name() + ": another record is in its place"};
}

// A failed object was never a checkpoint, so it must not hide an older one.
bool was_checkpoint(const StoredObject& object) { return object.may_be_on_disk && object.state != ObjectState::failed; }

Error no_memory() { return {Errc::out_of_memory, "there is no memory for its tombstone"}; }

}  // namespace

void RecordRemover::drop(std::vector<SharedObject> drops, bool at_once) {
  std::map<SharedSegment, std::vector<SharedObject>> groups, whole;
  {
    const TableLocked lock = table_.lock();
    for (SharedObject& object : drops) {
      if (object->placed())
        groups[object->segment].push_back(std::move(object));
      else
        object->segment->unplaced.erase(object->id);
    }
    for (auto& [segment, objects] : groups) {
      if (!at_once && is_removable(lock, *segment) && segment->records.size() == objects.size())
        whole[segment] = std::move(objects);
    }
  }
  for (const auto& [segment, objects] : groups) {
    if (!whole.contains(segment)) drop(segment, objects);
  }
  // A segment removed as a whole needs no tombstones, unless it must stay because another drop failed.
  for (const auto& [segment, objects] : whole) {
    {
      const TableLocked lock = table_.lock();
      if (is_removable(lock, *segment)) {
        for (const SharedObject& object : objects) segment->records.erase(object->head.offset);
        continue;
      }
    }
    drop(segment, objects);
  }
}

void RecordRemover::drop(const SharedSegment& segment, const std::vector<SharedObject>& drops) {
  const std::vector<SharedObject> dead = drop_on_disk(segment, drops);
  const TableLocked lock = table_.lock();
  for (const SharedObject& object : dead) segment->records.erase(object->head.offset);
  for (const SharedObject& object : drops) {
    if (segment->records.find(object->head.offset) == object) failed_.push_back(object);
  }
}

// Returns those that are off the disk. The others are retried later, and found by the next process if that fails
// too.
std::vector<SharedObject> RecordRemover::drop_on_disk(const SharedSegment& segment,
                                                      const std::vector<SharedObject>& drops) {
  SharedFile file = table_.file_of(*segment);
  if (!file) {
    auto opened = context_.segment_files.open(segment->number);
    if (!opened) return opened.error().code == Errc::unknown_version ? drops : std::vector<SharedObject>();
    file = std::move(*opened);
  }
  std::vector<SharedObject> dead;
  for (auto first = drops.begin(); first != drops.end();) {
    const auto last = first + std::min<std::ptrdiff_t>(drops.end() - first, kSlab / kBlock);
    std::vector<SharedObject> some(first, last);
    if (write_drops(segment, file, some)) {
      dead.insert(dead.end(), some.begin(), some.end());
    } else if (some.size() > 1) {  // one of them may be the cause
      std::ranges::copy_if(some, std::back_inserter(dead),
                           [&](const SharedObject& one) { return bool(write_drops(segment, file, {one})); });
    }
    first = last;
  }
  if (!dead.empty()) {
    if (const auto synced = context_.sync(segment->number, *file); !synced) {
      // Other writes to the segment may be lost too, so its objects that are not persistent fail.
      fail(segment, synced.error());
      return {};
    }
  }
  for (const SharedObject& object : dead) {
    if (object->head.record_bytes <= kBlock) continue;
    // If the file system cannot, the space is freed with the segment.
    static_cast<void>(
        context_.files.punch(file->fd(), object->head.offset + kBlock, object->head.record_bytes - kBlock));
  }
  return dead;
}

// Nothing more is written to a closed segment without unfinished objects.
void RecordRemover::trim_closed() {
  std::vector<std::pair<SharedSegment, SharedFile>> over;
  {
    const TableLocked lock = table_.lock();
    for (auto& [number, segment] : table_.segments(lock)) {
      if (!segment->closed || !segment->file) continue;
      const bool unfinished =
          !segment->unplaced.empty() || std::ranges::any_of(segment->records.objects(), [](const auto& one) {
            return one->state != ObjectState::persistent && one->state != ObjectState::failed;
          });
      if (!unfinished) over.emplace_back(segment, std::exchange(segment->file, nullptr));
    }
  }
  for (auto& [segment, file] : over) {
    if (segment->broken) continue;
    if (!context_.files.truncate(file->fd(), segment->end)) continue;  // which only wastes space
    const TableLocked lock = table_.lock();
    segment->bytes = segment->end;
  }
}

// The last segment shows which numbers have been used, and the one with the highest sequence which of these: a reader
// must not find another record where, or as what, it found one before. No segment is removed while its tombstones may
// hide older records that reappear.
bool RecordRemover::is_removable(const TableLocked& lock, const SegmentState& segment) const {
  const auto& all = table_.segments(lock);
  return !retains_segments_ && failed_.empty() && !segment.suspect && segment.closed && segment.unplaced.empty() &&
         segment.number != all.rbegin()->first &&
         (segment.sequence == 0 ||
          std::ranges::any_of(all, [&](const auto& one) { return one.second->sequence > segment.sequence; }));
}

std::vector<std::string> RecordRemover::failed_names() const {
  const TableLocked lock = table_.lock();
  std::vector<std::string> out;
  for (const SharedObject& object : failed_)
    if (object->may_be_on_disk) out.push_back(object->name());
  return out;
}

void RecordRemover::remove_empty() {
  std::vector<SharedSegment> empty;
  {
    const TableLocked lock = table_.lock();
    std::erase_if(table_.segments(lock), [&](const auto& one) {
      const bool goes = one.second->records.empty() && is_removable(lock, *one.second);
      if (goes) empty.push_back(one.second);
      return goes;
    });
  }
  bool any = false;
  for (const SharedSegment& segment : empty) {
    if (context_.segment_files.remove(segment->number)) {
      any = true;
      continue;
    }
    const TableLocked lock = table_.lock();  // retried next time
    table_.segments(lock).emplace(segment->number, segment);
  }
  if (any && context_.options.synced && !context_.files.sync_directory(context_.directory.path())) {
    const TableLocked lock = table_.lock();
    table_.invalidate_index(lock);
    retain_segments(lock);  // the files may reappear
  }
}

Result<void> RecordRemover::write_drops(const SharedSegment& segment, const SharedFile& file,
                                        const std::vector<SharedObject>& objects) {
  std::vector<SharedObject> alone, sharing;
  for (const SharedObject& object : objects) {
    if (!object->head.shares_block())
      alone.push_back(object);
    else if (object->may_be_on_disk)  // otherwise its whole block was never written
      sharing.push_back(object);
  }
  auto blocks = read_blocks(file, objects);
  if (!blocks) return blocks.error();
  if (auto done = write_tombstones(file, alone, *blocks); !done) return done;
  return append_list(segment, file, sharing);
}

// Each block once, checked: another record's is not overwritten, and no other record is listed. Zeros, if nothing was
// written there.
Result<RecordRemover::Blocks> RecordRemover::read_blocks(const SharedFile& file,
                                                         const std::vector<SharedObject>& objects) {
  Blocks out;
  std::optional<AlignedBytes> slab = AlignedBytes::make(objects.size() * kBlock);
  if (!slab) return no_memory();
  out.slab = std::move(*slab);
  std::ranges::fill(out.slab.first(out.slab.size()), std::byte{});
  std::vector<transfer::Piece> pieces;
  for (const SharedObject& object : objects) {
    const std::uint64_t offset = object->head.offset / kBlock * kBlock;
    const auto [at, added] = out.by_offset.try_emplace(offset, out.slab.data() + out.by_offset.size() * kBlock);
    if (added && object->may_be_on_disk) pieces.push_back({offset, at->second, kBlock});
  }
  if (auto read = context_.transfers.move(transfer::Direction::read, file, pieces); !read) return read.error();
  for (const SharedObject& object : objects) {
    if (!object->may_be_on_disk) continue;
    const std::uint64_t offset = object->head.offset;
    const std::span<const std::byte> block(out.by_offset.at(offset / kBlock * kBlock), kBlock);
    if (auto ours = check_place(*object, block.subspan(offset % kBlock)); !ours) return ours.error();
  }
  return out;
}

// Only the first sector changes, so a write that is torn between sectors leaves one of the two heads.
Result<void> RecordRemover::write_tombstones(const SharedFile& file, const std::vector<SharedObject>& objects,
                                             const Blocks& blocks) {
  std::vector<transfer::Piece> pieces;
  for (const SharedObject& object : objects) {
    RecordHead head = object->record_head();
    std::byte* const block = blocks.by_offset.at(head.place.offset);
    if (was_checkpoint(*object))
      head = tombstone(head, object->history);
    else
      head.kind = RecordHead::Kind::nothing;
    std::ranges::copy(encode(head), block);
    pieces.push_back({head.place.offset, block, kBlock});
  }
  return context_.transfers.move(transfer::Direction::write, file, pieces);
}

Result<void> RecordRemover::append_list(const SharedSegment& segment, const SharedFile& file,
                                        const std::vector<SharedObject>& objects) {
  if (objects.empty()) return {};
  std::vector<Drop> drops;
  for (const SharedObject& object : objects) {
    drops.push_back(
        {object->head.offset, was_checkpoint(*object) ? RecordHead::Kind::dropped : RecordHead::Kind::nothing});
  }
  const std::optional<AlignedBytes> slab = AlignedBytes::make(drops_bytes(drops.size()));
  if (!slab) return no_memory();
  const auto offset = take_room(segment, file, slab->size());
  if (!offset) return offset.error();
  std::ranges::copy(encode({context_.directory.head().store, segment->number, *offset}, drops), slab->data());
  const transfer::Piece piece{*offset, slab->data(), slab->size()};
  return context_.transfers.move(transfer::Direction::write, file, {&piece, 1});
}

// Behind the last record. Objects that have yet to be placed keep their room.
Result<std::uint64_t> RecordRemover::take_room(const SharedSegment& segment, const SharedFile& file,
                                               std::uint64_t bytes) {
  std::uint64_t from = 0;
  {
    const TableLocked lock = table_.lock();
    if (segment->has_room(bytes)) return std::exchange(segment->end, segment->end + bytes);
    from = std::max(segment->bytes, segment->end);
  }
  const auto made = context_.files.preallocate(file->fd(), from, bytes);
  if (!made && made.error != EOPNOTSUPP && made.error != ENOSYS && made.error != EINTR)
    return file_error(context_.segment_files.path(segment->number), "taking room for a list of drops", made.error);
  const TableLocked lock = table_.lock();
  segment->bytes = from + bytes;
  return std::exchange(segment->end, segment->end + bytes);
}

Result<void> RecordRemover::withdraw(const SharedSegment& segment, const SharedFile& file,
                                     const std::vector<SharedObject>& objects) {
  if (!file || objects.empty() || !write_drops(segment, file, objects)) return {};
  return context_.sync(segment->number, *file);
}

void RecordRemover::fail(const SharedSegment& segment, const Error& error) {
  std::vector<SharedObject> lost, on_disk;
  SharedFile file;
  {
    const TableLocked lock = table_.lock();
    segment->broken = segment->closed = true;
    if (!segment->missing) table_.invalidate_index(lock);  // the index reports a missing file
    for (const SharedObject& object : segment->records.objects()) {
      if (object->dropped || object->state == ObjectState::persistent || object->state == ObjectState::failed) continue;
      object->fail(error);
      lost.push_back(object);
      if (object->may_be_on_disk) on_disk.push_back(object);
    }
    for (auto& [id, object] : segment->unplaced) {
      if (object->dropped || object->state == ObjectState::failed) continue;
      object->fail(error);
      lost.push_back(object);
    }
    segment->unplaced.clear();
    file = segment->file;
  }
  static_cast<void>(withdraw(segment, file, on_disk));
  for (const SharedObject& object : lost) context_.persisted(object->id, *object->writing->error);
}

}  // namespace ebb::storage
