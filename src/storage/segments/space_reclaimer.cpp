#include "storage/segments/space_reclaimer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ebb::storage {

using platform::kBlock;

void SpaceReclaimer::drop(std::vector<SharedObject> drops, bool at_once) {
  std::map<SharedSegment, std::vector<SharedObject>> groups, whole;
  for (SharedObject& object : drops) groups[object->segment].push_back(std::move(object));
  {
    const Locked lock = table_.lock();
    for (auto& [segment, objects] : groups) {
      if (!at_once && removes(lock, *segment) && segment->records.size() == objects.size())
        whole[segment] = std::move(objects);
    }
  }
  for (const auto& [segment, objects] : groups) {
    if (!whole.contains(segment)) drop(segment, objects);
  }
  // Of a segment that goes as a whole, no head needs to say so; unless it stays, for another drop failed meanwhile.
  for (const auto& [segment, objects] : whole) {
    {
      const Locked lock = table_.lock();
      if (removes(lock, *segment)) {
        for (const SharedObject& object : objects) segment->records.erase(object->head.place.offset);
        continue;
      }
    }
    drop(segment, objects);
  }
}

void SpaceReclaimer::drop(const SharedSegment& segment, const std::vector<SharedObject>& drops) {
  const std::vector<SharedObject> dead = bury(segment, drops);
  const Locked lock = table_.lock();
  for (const SharedObject& object : dead) segment->records.erase(object->head.place.offset);
  for (const SharedObject& object : drops) {
    const auto there = segment->records.find(object->head.place.offset);
    if (there != segment->records.end() && there->second == object) failed_.push_back(object);
  }
}

// Which of them the disk gave up. The others are tried again when the store closes, and found again if that fails too.
std::vector<SharedObject> SpaceReclaimer::bury(const SharedSegment& segment, const std::vector<SharedObject>& drops) {
  SharedFile file;
  {
    const Locked lock = table_.lock();
    file = segment->file;
  }
  if (!file) {
    auto opened = context_.segment_files.open(segment->number);
    if (!opened) return opened.error().code == Errc::unknown_version ? drops : std::vector<SharedObject>();
    file = std::move(*opened);
  }
  std::vector<SharedObject> dead;
  for (auto first = drops.begin(); first != drops.end();) {
    const auto last = first + std::min<std::ptrdiff_t>(drops.end() - first, kSlab / kBlock);
    std::vector<SharedObject> some(first, last);
    if (tombstones_.write(file, some)) {
      dead.insert(dead.end(), some.begin(), some.end());
    } else if (some.size() > 1) {  // one of them may be what is wrong
      std::ranges::copy_if(some, std::back_inserter(dead),
                           [&](const SharedObject& one) { return bool(tombstones_.write(file, {one})); });
    }
    first = last;
  }
  if (!dead.empty()) {
    if (const auto synced = context_.sync(segment->number, *file); !synced) {
      // Writes of others in it may be lost with these: what is not durable there never will be.
      tombstones_.fail(segment, synced.error());
      return {};
    }
  }
  for (const SharedObject& object : dead) {
    if (object->head.record_bytes == kBlock) continue;
    // Where the file system cannot, the room comes back with the segment.
    static_cast<void>(
        context_.files.punch(file->fd(), object->head.place.offset + kBlock, object->head.record_bytes - kBlock));
  }
  return dead;
}

// Nothing more is to be written to a segment that is closed and has nothing unfinished.
void SpaceReclaimer::trim_closed() {
  std::vector<std::pair<SharedSegment, SharedFile>> over;
  {
    const Locked lock = table_.lock();
    for (auto& [number, segment] : table_.segments(lock)) {
      if (!segment->closed || !segment->file) continue;
      const bool unfinished = std::ranges::any_of(segment->records, [](const auto& one) {
        return one.second->state != KeptObject::State::kept && one.second->state != KeptObject::State::failed;
      });
      if (!unfinished) over.emplace_back(segment, std::exchange(segment->file, nullptr));
    }
  }
  for (auto& [segment, file] : over) {
    if (segment->broken) continue;
    static_cast<void>(context_.files.truncate(file->fd(), segment->end));  // only space is lost otherwise
  }
}

// The last one says which numbers were used, and so does each drop in it: somebody who reads must not meet another
// record where he found one. Nor does any go while an older writing may be met, which the drops in it hide.
bool SpaceReclaimer::removes(const Locked& lock, const KeptSegment& segment) {
  return !keeps_segments_ && failed_.empty() && !segment.suspect &&
         segment.number != table_.segments(lock).rbegin()->first;
}

std::vector<std::string> SpaceReclaimer::failed_names() const {
  const Locked lock = table_.lock();
  std::vector<std::string> out;
  for (const SharedObject& object : failed_) out.push_back(object->name());
  return out;
}

void SpaceReclaimer::remove_empty() {
  std::vector<SharedSegment> empty;
  {
    const Locked lock = table_.lock();
    std::erase_if(table_.segments(lock), [&](const auto& one) {
      const bool goes = one.second->records.empty() && removes(lock, *one.second);
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
    const Locked lock = table_.lock();  // the next time
    table_.segments(lock).emplace(segment->number, segment);
  }
  if (any && context_.options.synced && !context_.files.sync_directory(context_.directory.path())) {
    const Locked lock = table_.lock();
    table_.doubt_disk(lock);
    keep_segments(lock);  // they may be there again
  }
}

}  // namespace ebb::storage
