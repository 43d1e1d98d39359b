// What the committer does to records that nobody wants any more, and to segments in which nothing lives.
#include <algorithm>
#include <iterator>

#include "storage/file_io.hpp"
#include "storage/format/bytes.hpp"
#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using platform::kBlock;

void KeptStore::carry_out(std::vector<Object> drops, bool at_once) {
  std::map<Segment, std::vector<Object>> groups, whole;
  for (Object& object : drops) groups[object->segment].push_back(std::move(object));
  {
    std::lock_guard lock(mutex_);
    for (auto& [segment, objects] : groups) {
      if (!at_once && goes_locked(*segment) && segment->records.size() == objects.size())
        whole[segment] = std::move(objects);
    }
  }
  for (const auto& [segment, objects] : groups) {
    if (!whole.contains(segment)) carry_out(segment, objects);
  }
  // Of a segment that goes as a whole, no head needs to say so; unless it stays, for another drop failed meanwhile.
  for (const auto& [segment, objects] : whole) {
    {
      std::lock_guard lock(mutex_);
      if (goes_locked(*segment)) {
        for (const Object& object : objects) segment->records.erase(object->head.place.offset);
        continue;
      }
    }
    carry_out(segment, objects);
  }
}

void KeptStore::carry_out(const Segment& segment, const std::vector<Object>& drops) {
  const std::vector<Object> dead = bury(segment, drops);
  std::lock_guard lock(mutex_);
  for (const Object& object : dead) segment->records.erase(object->head.place.offset);
  for (const Object& object : drops) {
    const auto there = segment->records.find(object->head.place.offset);
    if (there != segment->records.end() && there->second == object) undone_.push_back(object);
  }
}

// Which of them the disk gave up. The others are tried again when the store closes, and found again if that fails too.
std::vector<KeptStore::Object> KeptStore::bury(const Segment& segment, const std::vector<Object>& drops) {
  SharedFile file;
  {
    std::lock_guard lock(mutex_);
    file = segment->file;
  }
  if (!file) {
    auto opened = segments_files_.open(segment->number);
    if (!opened) return opened.error().code == Errc::unknown_version ? drops : std::vector<Object>();
    file = std::move(*opened);
  }
  std::vector<Object> dead;
  for (auto first = drops.begin(); first != drops.end();) {
    const auto last = first + std::min<std::ptrdiff_t>(drops.end() - first, kSlab / kBlock);
    std::vector<Object> some(first, last);
    if (write_heads(file, some)) {
      dead.insert(dead.end(), some.begin(), some.end());
    } else if (some.size() > 1) {  // one of them may be what is wrong
      std::ranges::copy_if(some, std::back_inserter(dead),
                           [&](const Object& one) { return bool(write_heads(file, {one})); });
    }
    first = last;
  }
  if (options_.synced && !dead.empty()) {
    if (const auto synced = files_.sync(file->fd()); !synced) {
      // Writes of others in it may be lost with these: what is not durable there never will be.
      fail(segment, file_error(segments_files_.path(segment->number), "syncing it", synced.error));
      return {};
    }
  }
  for (const Object& object : dead) {
    if (object->head.record_bytes == kBlock) continue;
    // Where the file system cannot, the room comes back with the segment.
    static_cast<void>(files_.punch(file->fd(), object->head.place.offset + kBlock, object->head.record_bytes - kBlock));
  }
  return dead;
}

// An index that is wrong may have named another record's place: that is not written over. A head that rotted is.
Result<void> KeptStore::check_place(const KeptObject& object, std::span<const std::byte> block) const {
  const auto now = parse_head(block.first(kSector), object.head.place, UINT64_MAX);
  if (!now) return {};
  const auto name =
      BytesReader(block.subspan(kSector)).text(std::min<std::size_t>(object.history.size(), kBlock - kSector));
  const bool ours = *now == object.head && object.history.starts_with(name);
  if (ours || says_gone(*now, object.head)) return {};
  return Error{Errc::damaged, name_of(object) + ": another record is in its place"};
}

// The first sector alone changes: one that is torn cannot take others with it.
Result<void> KeptStore::write_heads(const SharedFile& file, const std::vector<Object>& objects) {
  const std::optional<AlignedBytes> slab = AlignedBytes::make(objects.size() * kBlock);
  if (!slab) return Error{Errc::out_of_memory, "there is no memory to write that it was dropped from"};
  std::fill_n(slab->data(), slab->size(), std::byte{0});
  std::vector<transfer::Piece> all, marked;
  std::byte* at = slab->data();
  for (const Object& object : objects) {
    all.push_back({object->head.place.offset, at, kBlock});
    if (object->marked) marked.push_back(all.back());
    at += kBlock;
  }
  if (auto read = transfers_.move(transfer::Direction::read, file, marked); !read) return read;
  for (std::size_t i = 0, read = 0; i < objects.size(); ++i) {
    if (!objects[i]->marked) continue;
    if (auto ours = check_place(*objects[i], {marked[read++].memory, kBlock}); !ours) return ours;
  }
  at = slab->data();
  for (const Object& object : objects) {
    // What failed never was a checkpoint: it hides none that was there before.
    const bool was = object->marked && object->state != KeptObject::State::failed;
    RecordHead head = object->head;
    head.kind = RecordHead::Kind::nothing;
    std::ranges::copy(encode(was ? dropped(object->head, object->history) : head), at);
    at += kBlock;
  }
  return transfers_.move(transfer::Direction::write, file, all);
}

// Nothing more is to be written to a segment that is closed and has nothing unfinished.
void KeptStore::cut_closed() {
  std::vector<std::pair<Segment, SharedFile>> over;
  {
    std::lock_guard lock(mutex_);
    for (auto& [number, segment] : segments_) {
      if (!segment->closed || !segment->file) continue;
      const bool unfinished = std::ranges::any_of(segment->records, [](const auto& one) {
        return one.second->state != KeptObject::State::kept && one.second->state != KeptObject::State::failed;
      });
      if (unfinished) continue;
      over.emplace_back(segment, std::move(segment->file));
      segment->file = nullptr;
    }
  }
  for (auto& [segment, file] : over) {
    if (segment->broken) continue;
    static_cast<void>(files_.truncate(file->fd(), segment->end));  // only space is lost otherwise
  }
}

// Whether it goes when nothing lives in it. The last one says which numbers were used, and so does each drop in it:
// somebody who reads must not meet another record where he found one. Nor does any go while an older writing may be
// met, which the drops in it hide.
bool KeptStore::goes_locked(const KeptSegment& segment) const {
  return !hides_locked() && !segment.suspect && segment.number != segments_.rbegin()->first;
}

std::vector<std::string> KeptStore::undropped() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const Object& object : undone_) out.push_back(name_of(*object));
  return out;
}

void KeptStore::remove_empty() {
  std::vector<Segment> empty;
  {
    std::lock_guard lock(mutex_);
    for (auto at = segments_.begin(); at != segments_.end();) {
      const Segment& segment = at->second;
      if (segment->records.empty() && goes_locked(*segment)) {
        empty.push_back(segment);
        at = segments_.erase(at);
      } else {
        ++at;
      }
    }
  }
  bool any = false;
  for (const Segment& segment : empty) {
    if (segments_files_.remove(segment->number)) {
      any = true;
      continue;
    }
    std::lock_guard lock(mutex_);  // the next time
    segments_.emplace(segment->number, segment);
  }
  if (any && options_.synced && !files_.sync_directory(directory_.path())) {
    std::lock_guard lock(mutex_);
    failed_ = hides_ = true;  // they may be there again
  }
}

}  // namespace ebb::storage
