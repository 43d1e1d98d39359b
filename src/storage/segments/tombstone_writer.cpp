#include "storage/segments/tombstone_writer.hpp"

#include <algorithm>

#include "storage/format/bytes.hpp"

namespace ebb::storage {

using platform::kBlock;
using State = KeptObject::State;

// An index that is wrong may have named another record's place: that is not written over. A head that rotted is.
Result<void> TombstoneWriter::check_place(const KeptObject& object, std::span<const std::byte> block) {
  const auto now = parse_head(block.first(kSector), object.head.place, UINT64_MAX);
  if (!now) return {};
  const auto name =
      BytesReader(block.subspan(kSector)).text(std::min<std::size_t>(object.history.size(), kBlock - kSector));
  const bool ours = *now == object.head && object.history.starts_with(name);
  if (ours || says_gone(*now, object.head)) return {};
  return Error{Errc::damaged, object.name() + ": another record is in its place"};
}

// The first sector alone changes: one that is torn cannot take others with it.
Result<void> TombstoneWriter::write(const SharedFile& file, const std::vector<SharedObject>& objects) {
  const std::optional<AlignedBytes> slab = AlignedBytes::make(objects.size() * kBlock);
  if (!slab) return Error{Errc::out_of_memory, "there is no memory to write that it was dropped from"};
  std::fill_n(slab->data(), slab->size(), std::byte{0});
  std::vector<transfer::Piece> all, marked;
  std::byte* at = slab->data();
  for (const SharedObject& object : objects) {
    all.push_back({object->head.place.offset, at, kBlock});
    if (object->marked) marked.push_back(all.back());
    at += kBlock;
  }
  if (auto read = context_.transfers.move(transfer::Direction::read, file, marked); !read) return read;
  for (std::size_t i = 0, read = 0; i < objects.size(); ++i) {
    if (!objects[i]->marked) continue;
    if (auto ours = check_place(*objects[i], {marked[read++].memory, kBlock}); !ours) return ours;
  }
  at = slab->data();
  for (const SharedObject& object : objects) {
    // What failed never was a checkpoint: it hides none that was there before.
    const bool was = object->marked && object->state != State::failed;
    RecordHead head = object->head;
    head.kind = RecordHead::Kind::nothing;
    std::ranges::copy(encode(was ? dropped(object->head, object->history) : head), at);
    at += kBlock;
  }
  return context_.transfers.move(transfer::Direction::write, file, all);
}

Result<void> TombstoneWriter::withdraw(const KeptSegment& segment, const SharedFile& file,
                                       const std::vector<SharedObject>& objects) {
  if (!file || objects.empty() || !write(file, objects)) return {};
  return context_.sync(segment.number, *file);
}

void TombstoneWriter::fail(const SharedSegment& segment, const Error& error) {
  std::vector<SharedObject> lost, marked;
  SharedFile file;
  {
    const Locked lock = table_.lock();
    segment->broken = segment->closed = true;
    if (!segment->unnamed) table_.doubt_disk(lock);  // one that is not there is missed by the index
    for (auto& [offset, object] : segment->records) {
      if (object->dropped || object->state == State::kept || object->state == State::failed) continue;
      object->fail(error);
      lost.push_back(object);
      if (object->marked) marked.push_back(object);
    }
    file = segment->file;
  }
  static_cast<void>(withdraw(*segment, file, marked));
  for (const SharedObject& object : lost) context_.kept(object->id, object->error);
}

}  // namespace ebb::storage
