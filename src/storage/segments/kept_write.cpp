// A place for each object, its ranges, and its end.
#include <algorithm>
#include <stdexcept>

#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using platform::kBlock;
using platform::round_up;

/// A put under way: the transfer and the checksums, whichever ends last reports both.
struct KeptStore::Put {
  Token token = 0;
  Object object;
  SharedFile file;
  std::uint64_t offset = 0;
  const std::byte* memory = nullptr;
  std::size_t bytes = 0;
  AlignedBytes beside;  // of a small object: the room of its header, still zeros, and its payload
  std::atomic<int> parts{2};
  Result<void> how;  // of the transfer
};

std::string KeptStore::name_of(const KeptObject& object) const {
  return "version " + std::to_string(object.head.version) + " of \"" + object.history + "\"";
}

Result<void> KeptStore::begin(ObjectId id, std::shared_ptr<const Description> description) {
  const std::uint32_t block = options_.checksums ? options_.block_bytes : 0;
  if (auto fits = storage::check(*description, block); !fits) return fits;
  const std::uint64_t payload = description->info.bytes, header = header_bytes(*description, block);
  auto object = std::make_shared<KeptObject>();
  object->id = id;
  object->history = description->history;
  object->head = {.place = {directory_.head().store, 0, 0},
                  .header_bytes = header,
                  .payload_bytes = payload,
                  .record_bytes = header + round_up(payload),
                  .version = description->version,
                  .block_bytes = block};
  object->description = std::move(description);
  object->sums = std::make_shared<std::vector<Checksum>>(block_count(payload, block));
  object->missing = block_count(payload, options_.block_bytes);
  object->put.resize(object->missing);

  std::lock_guard turn(begin_mutex_);
  Lock lock(mutex_);
  if (options_.readonly) throw std::logic_error("an object was begun in a storage that is read only");
  if (closed_locked()) throw std::logic_error("an object was begun in a stopped storage");
  if (objects_.contains(id)) throw std::logic_error("an object was begun twice");
  if (used_ > capacity_ || object->space() > capacity_ - used_) {
    return Error{Errc::no_space, "no space for an object of " + std::to_string(payload) + " bytes in " + where_ + ": " +
                                     std::to_string(used_) + " of " + std::to_string(capacity_) + " bytes are used"};
  }
  if (next_sequence_ > kMaxSequence) {
    return Error{Errc::unsupported, "no checkpoint can be written to " + where_ +
                                        " any more: its records' sequences have "
                                        "reached " +
                                        std::to_string(kMaxSequence) + "; copy what is there to a new store"};
  }
  auto room = room_for(lock, object->head.record_bytes);
  if (!room) return room.error();
  object->segment = *room;
  object->head.place.segment = object->segment->number;
  object->head.place.offset = object->segment->end;
  object->head.sequence = next_sequence_++;
  object->segment->end += object->head.record_bytes;
  object->segment->records.emplace(object->head.place.offset, object);
  used_ += object->space();
  object->commits = commits_;
  objects_.emplace(id, object);
  ready_locked(object);
  return {};
}

// The segment that is being written, if any: it is the last one.
KeptStore::Segment KeptStore::current_locked() const {
  return segments_.empty() || segments_.rbegin()->second->closed ? nullptr : segments_.rbegin()->second;
}

// The segment that is being written, or a new one; a smaller one, of what is wanted now, where there is no room for
// more. The lock is given away meanwhile.
Result<KeptStore::Segment> KeptStore::room_for(Lock& lock, std::uint64_t record_bytes) {
  for (bool waited = false;;) {
    const Segment current = current_locked();
    if (current && record_bytes <= current->bytes - current->end) return current;
    auto made = new_segment(lock, record_bytes);
    if (!made && made.error().code == Errc::no_space && !waited) {
      waited = true;
      if (await_drops(lock)) continue;
    }
    if (!made) return made;
    if (const Segment last = current_locked()) last->closed = true;
    segments_.emplace((*made)->number, *made);
  }
}

Result<KeptStore::Segment> KeptStore::new_segment(Lock& lock, std::uint64_t record_bytes) {
  const SegmentHead head{directory_.head().store, next_segment_++};
  const std::uint64_t least = kBlock + record_bytes;
  // A store of little capacity takes no more disk than that (headers come on top).
  const std::uint64_t whole = std::max(least, std::min(round_up(options_.segment_bytes), capacity_ + (1 << 20)));
  lock.unlock();
  std::uint64_t bytes = whole;
  auto file = segments_files_.make(head, bytes, options_.synced);
  if (!file && file.error().code == Errc::no_space && least < whole) {
    bytes = least;
    file = segments_files_.make(head, bytes, options_.synced);
  }
  lock.lock();
  if (!file) return file.error();
  auto segment = std::make_shared<KeptSegment>();
  segment->number = head.segment;
  segment->bytes = bytes;
  segment->file = std::move(*file);
  return segment;
}

// Whether some were under way: now they are carried out, and the disk has their room. Where the end of a transfer is
// being reported nobody waits for it, for they may need that thread: they are only hastened, and who asks again finds
// room.
bool KeptStore::await_drops(Lock& lock) {
  if ((drops_.empty() && batches_begun_ == batches_ended_) || std::this_thread::get_id() == committer_.get_id())
    return false;
  const std::uint64_t next = batches_begun_ + (drops_.empty() ? 0 : 1);
  commit_wanted_ = true;
  wake_.notify_all();
  if (KeptTransfers::is_ending()) return false;
  idle_.wait(lock, [&] { return batches_ended_ >= next; });
  return true;
}

Result<void> KeptStore::put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                            const std::byte* memory, std::size_t bytes) {
  auto put = std::make_shared<Put>();
  {
    Lock lock(mutex_);
    if (closed_locked()) throw std::logic_error("a put to a stopped storage");
    const auto found = objects_.find(id);
    if (found == objects_.end()) throw std::logic_error("a put of an object that was not begun");
    KeptObject& object = *found->second;
    if (object.head.payload_bytes != total) throw std::logic_error("an object's total is not what it was begun with");
    if (offset > total || bytes > total - offset || offset % options_.block_bytes ||
        (bytes % options_.block_bytes && bytes != total - offset)) {
      throw std::logic_error("a range outside its object, or not of whole blocks of " +
                             std::to_string(options_.block_bytes) + " bytes");
    }
    if (object.state == KeptObject::State::failed) return object.error;
    if (bytes > 0 && object.state != KeptObject::State::writing) {
      throw std::logic_error("a put to an object that is complete");
    }
    put->token = token;
    put->object = found->second;
    put->file = object.segment->file;
    put->offset = offset;
    put->memory = memory;
    put->bytes = bytes;
    if (!put->file) put->file = std::make_shared<const platform::File>();  // of no bytes, and kept already
    ++object.puts;
    ++object.under_way;
    ++under_way_;
  }
  try {
    begin_put(put);
  } catch (...) {  // no memory, say: nobody will ever tell of it
    std::lock_guard lock(mutex_);
    --put->object->puts;
    --put->object->under_way;
    end_locked();
    throw;
  }
  return {};
}

void KeptStore::begin_put(const std::shared_ptr<Put>& put) {
  if (put->bytes > 0 && put->object->head.record_bytes <= kSmall) {
    workers_.post([this, put] {
      hash(*put);
      put->parts = 1;
      write_small(put);
    });
    return;
  }
  // The engine only reads memory when it writes files.
  const transfer::Piece piece{put->object->payload_place() + put->offset, const_cast<std::byte*>(put->memory),
                              put->bytes};
  if (put->object->head.block_bytes == 0 || put->bytes == 0) {
    put->parts = 1;
    return write(put, piece);
  }
  workers_.post([this, put] {
    hash(*put);
    if (--put->parts == 0) finish(put);
  });
  try {
    write(put, piece);
  } catch (const std::bad_alloc&) {  // its memory is being read already: it ends as any other
    put->how = Error{Errc::out_of_memory, name_of(*put->object) + ": there is no memory to write it with"};
    if (--put->parts == 0) finish(put);
  }
}

void KeptStore::hash(const Put& put) {
  const std::uint32_t block = put.object->head.block_bytes;
  if (block == 0) return;
  checksums_of({put.memory, put.bytes}, block,
               std::span(*put.object->sums).subspan(put.offset / block, block_count(put.bytes, block)));
}

// With the room of its header in one transfer: the disk is asked half as often where many follow each other, and the
// header then overwrites blocks that the file system has already accounted for.
void KeptStore::write_small(const std::shared_ptr<Put>& put) {
  const RecordHead& head = put->object->head;
  if (put->offset > 0)
    return write(put, {put->object->payload_place() + put->offset, const_cast<std::byte*>(put->memory), put->bytes});
  auto beside = AlignedBytes::make(head.header_bytes + put->bytes);
  if (!beside) {
    put->how = Error{Errc::out_of_memory, name_of(*put->object) + ": there is no memory to write it from"};
    return finish(put);
  }
  put->beside = std::move(*beside);
  std::ranges::fill(put->beside.first(put->beside.size()), std::byte{});  // its end, too: it all goes to the disk
  std::copy_n(put->memory, put->bytes, put->beside.data() + head.header_bytes);
  write(put, {head.place.offset, put->beside.data(), head.header_bytes + put->bytes});
}

void KeptStore::write(const std::shared_ptr<Put>& put, const transfer::Piece& piece) {
  transfers_.submit(transfer::Direction::write, put->file, {&piece, 1}, [this, put](Result<void> how) {
    put->how = std::move(how);
    if (--put->parts == 0) finish(put);
  });
}

void KeptStore::finish(const std::shared_ptr<Put>& put) {
  KeptObject& object = *put->object;
  {
    std::lock_guard lock(mutex_);
    --object.under_way;
    for (std::uint64_t at = put->offset; put->how && at < put->offset + put->bytes; at += options_.block_bytes) {
      const std::size_t block = at / options_.block_bytes;
      if (object.put[block]) continue;
      object.put[block] = true;
      if (--object.missing == 0) object.commits = commits_;
    }
  }
  done_(put->token, put->how);
  std::lock_guard lock(mutex_);
  --object.puts;
  ready_locked(put->object);
  end_locked();
}

// Complete, and all of it told.
void KeptStore::ready_locked(const Object& object) {
  if (object->state != KeptObject::State::writing || object->dropped || object->missing || object->puts) return;
  object->state = KeptObject::State::ready;
  object->put = {};
  ready_.push_back(object);
  ready_bytes_ += object->space();
  commit_wanted_ = commit_wanted_ || object->commits != commits_;  // called while its end was being reported
  wake_.notify_all();
}

void KeptStore::end_locked() {
  --under_way_;
  if (under_way_ == 0) idle_.notify_all();
}

// Out of the caller's sight.
KeptStore::Object KeptStore::take_locked(ObjectId id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return nullptr;
  if (found->second->under_way) throw std::logic_error("an object with transfers under way was dropped");
  Object object = std::move(found->second);
  objects_.erase(found);
  used_ -= object->space();
  object->dropped = true;
  return object;
}

void KeptStore::drop(ObjectId id) {
  std::lock_guard lock(mutex_);
  Object object = take_locked(id);
  if (!object || options_.readonly) return;
  drops_.push_back(std::move(object));
  wake_.notify_all();
}

void KeptStore::forget(ObjectId id) {
  using State = KeptObject::State;
  std::lock_guard lock(mutex_);
  Object object = take_locked(id);
  if (!object || options_.readonly) return;
  if (object->state == State::kept || object->state == State::committing) {
    object->forgotten = true;
    forgotten_.push_back(std::move(object));
    return;
  }
  drops_.push_back(std::move(object));  // it never was on the disk
  wake_.notify_all();
}

void KeptStore::commit() {
  std::lock_guard lock(mutex_);
  commit_wanted_ = true;
  ++commits_;
  wake_.notify_all();
}

StorageUse KeptStore::use() const {
  std::lock_guard lock(mutex_);
  return {capacity_, used_, objects_.size(), objects_.size(), capacity_ > used_ ? capacity_ - used_ : 0};
}

std::string KeptStore::describe() const {
  std::lock_guard lock(mutex_);
  return std::to_string(segments_.size()) + " segments in " + where_ + ", " +
         (options_.direct ? "O_DIRECT" : "buffered") + ", " + std::string(transfers_.name()) + ", " +
         (options_.readonly ? "read only"
          : options_.synced ? "synced"
                            : "handed to the system") +
         (undone_.empty() ? "" : ", " + std::to_string(undone_.size()) + " drops not carried out");
}

}  // namespace ebb::storage
