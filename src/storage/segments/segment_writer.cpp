#include "storage/segments/segment_writer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>

#include "storage/format/hasher.hpp"

namespace ebb::storage {

using os::kBlock;
using os::round_up;

/// A put in flight: the transfer and the checksums; whichever ends last reports it.
struct SegmentWriter::Put {
  Token token = 0;
  SharedObject object;
  SharedFile file;
  std::uint64_t offset = 0;
  const std::byte* memory = nullptr;
  std::size_t bytes = 0;
  AlignedBytes beside;  // of a small object: zeros in place of its header, and its payload
  std::atomic<int> parts{2};
  Result<void> how;  // of the transfer
};

Result<void> SegmentWriter::begin(ObjectId id, std::shared_ptr<const Description> description, bool cached) {
  const std::uint64_t small = compact_bytes(*description);
  const std::uint32_t block = context_.options.checksums && small == 0 ? context_.options.block_bytes : 0;
  if (auto fits = storage::check(*description, block); !fits) return fits;
  const std::uint64_t payload = description->info.bytes, header = small ? small : header_bytes(*description, block);
  auto object = std::make_shared<StoredObject>();
  object->id = id;
  object->history = description->history;
  object->head.header_bytes = header;
  object->head.payload_bytes = payload;
  object->head.record_bytes = small ? small : header + round_up(payload);
  object->head.version = description->version;
  object->head.block_bytes = block;
  const std::uint64_t sequence = description->sequence;
  object->load().description = std::move(description);
  if (!small) object->loaded->sums = std::make_shared<std::vector<Checksum>>(block_count(payload, block));
  object->writing = std::make_unique<StoredObject::Writing>();
  object->writing->blocks_missing = block_count(payload, context_.options.block_bytes);
  object->writing->blocks_put.resize(object->writing->blocks_missing);

  std::lock_guard turn(begin_mutex_);
  TableLocked lock = table_.lock();
  if (context_.options.readonly) throw std::logic_error("an object was begun in a storage that is read only");
  if (table_.is_stopped(lock)) throw std::logic_error("an object was begun in a stopped storage");
  if (table_.find(lock, id)) throw std::logic_error("an object was begun twice");
  if (auto fits = check_room(lock, *object); !fits) return fits;
  auto room = room_for(lock, round_up(object->head.record_bytes), cached && context_.options.direct);
  if (!room) return room.error();
  object->segment = *room;
  std::uint64_t& next = table_.next(lock).sequence;
  object->head.sequence = sequence != 0 ? sequence : next;
  next = std::max(next, object->head.sequence + 1);
  if (small) {
    object->segment->unplaced.emplace(id, object);
  } else {
    object->head.offset = object->segment->end;
    object->segment->end += object->head.record_bytes;
    object->segment->records.add(object->head.offset, object);
  }
  object->writing->commits_when_put = committer_.commits(lock);
  table_.add(lock, object);
  committer_.add_if_complete(lock, object);
  return {};
}

Result<void> SegmentWriter::check_room(const TableLocked& lock, const StoredObject& object) const {
  if (!table_.has_room(lock, object.space())) {
    const StorageUse use = table_.use(lock);
    return Error{Errc::no_space, "no space for an object of " + std::to_string(object.head.payload_bytes) +
                                     " bytes in " + context_.where + ": " + std::to_string(use.used) + " of " +
                                     std::to_string(use.capacity) + " bytes are used"};
  }
  if (table_.next(lock).sequence > kMaxSequence) {
    return Error{Errc::unsupported, "no checkpoint can be written to " + context_.where +
                                        " any more: its records' sequences have reached " +
                                        std::to_string(kMaxSequence) + "; copy its checkpoints to a new store"};
  }
  return {};
}

// The current segment or a new one, which is only as large as the record if the disk has no more space.
Result<SharedSegment> SegmentWriter::room_for(TableLocked& lock, std::uint64_t record_bytes, bool cached) {
  for (bool waited = false;;) {
    const SharedSegment current = table_.current(lock, cached);
    if (current && current->has_room(record_bytes)) return current;
    auto made = new_segment(lock, record_bytes, cached);
    if (!made && made.error().code == Errc::no_space && !waited) {
      waited = true;
      if (committer_.await_drops(lock)) continue;
    }
    if (!made) return made;
    table_.set_current(lock, std::move(*made), cached);
  }
}

Result<SharedSegment> SegmentWriter::new_segment(TableLocked& lock, std::uint64_t record_bytes, bool cached) {
  const SegmentHead head{context_.directory.head().store, table_.next(lock).segment++};
  const std::uint64_t least = kBlock + record_bytes;
  // A store of small capacity uses no more disk than that, plus headers.
  const std::uint64_t most = std::min(round_up(context_.options.segment_bytes), table_.capacity() + (1 << 20));
  const std::uint64_t whole = std::max(least, cached ? round_up(most / kCachedPart) : most);
  lock.unlock();
  std::uint64_t bytes = whole;
  auto file = context_.segment_files.make(head, bytes, context_.options.synced, cached);
  if (!file && file.error().code == Errc::no_space && least < whole) {
    bytes = least;
    file = context_.segment_files.make(head, bytes, context_.options.synced, cached);
  }
  lock.lock();
  if (!file) return file.error();
  auto segment = std::make_shared<SegmentState>();
  segment->store = head.store;
  segment->number = head.segment;
  segment->bytes = bytes;
  segment->file = std::move(*file);
  return segment;
}

Result<void> SegmentWriter::put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                                const std::byte* memory, std::size_t bytes) {
  auto put = std::make_shared<Put>();
  {
    const TableLocked lock = table_.lock();
    if (table_.is_stopped(lock)) throw std::logic_error("a put to a stopped storage");
    put->object = table_.find(lock, id);
    if (!put->object) throw std::logic_error("a put of an object that was not begun");
    StoredObject& object = *put->object;
    if (object.head.payload_bytes != total) throw std::logic_error("an object's total is not what it was begun with");
    if (offset > total || bytes > total - offset || offset % context_.options.block_bytes ||
        (bytes % context_.options.block_bytes && bytes != total - offset)) {
      throw std::logic_error("a range outside its object, or not of whole blocks of " +
                             std::to_string(context_.options.block_bytes) + " bytes");
    }
    if (object.state == ObjectState::failed) return *object.writing->error;
    if (bytes > 0 && object.state != ObjectState::writing) {
      throw std::logic_error("a put to an object that is complete");
    }
    put->token = token;
    put->file = object.segment->file;
    put->offset = offset;
    put->memory = memory;
    put->bytes = bytes;
    if (!put->file) put->file = std::make_shared<const os::File>();  // of zero bytes, and persistent already
    ++object.puts;
    table_.begin_transfer(lock, object);
  }
  try {
    start(put);
  } catch (...) {  // out of memory, for example: it will never be reported
    const TableLocked lock = table_.lock();
    --put->object->puts;
    --put->object->in_flight;
    table_.end_transfer(lock);
    throw;
  }
  return {};
}

void SegmentWriter::start(const std::shared_ptr<Put>& put) {
  if (put->object->head.compact()) {
    auto held = std::make_shared<std::vector<std::byte>>(put->memory, put->memory + put->bytes);
    if (put->bytes > 0) {  // of nothing, it may be persistent already
      const TableLocked lock = table_.lock();
      put->object->writing->held = std::move(held);
    }
    context_.workers.post([this, put] { finish(put); });
    return;
  }
  if (put->bytes > 0 && put->object->head.record_bytes <= kSmall) {
    context_.workers.post([this, put] {
      hash(*put);
      put->parts = 1;
      write_small(put);
    });
    return;
  }
  // The engine only reads memory when it writes files.
  const transfer::Piece piece{put->object->payload_offset() + put->offset, const_cast<std::byte*>(put->memory),
                              put->bytes};
  if (put->object->head.block_bytes == 0 || put->bytes == 0) {
    put->parts = 1;
    return write(put, piece);
  }
  context_.workers.post([this, put] {
    hash(*put);
    if (--put->parts == 0) finish(put);
  });
  try {
    write(put, piece);
  } catch (const std::bad_alloc&) {  // a worker is reading its memory already: it is reported as usual
    put->how = put->object->named({Errc::out_of_memory, "there is no memory to write it with"});
    if (--put->parts == 0) finish(put);
  }
}

void SegmentWriter::hash(const Put& put) {
  const std::uint32_t block = put.object->head.block_bytes;
  if (block == 0) return;
  checksums_of({put.memory, put.bytes}, block,
               std::span(*put.object->loaded->sums).subspan(put.offset / block, block_count(put.bytes, block)));
}

// Together with the space of its header: half as many requests for many small objects, and the header later overwrites
// blocks that the file system has already allocated.
void SegmentWriter::write_small(const std::shared_ptr<Put>& put) {
  const StoredHead& head = put->object->head;
  if (put->offset > 0)
    return write(put, {put->object->payload_offset() + put->offset, const_cast<std::byte*>(put->memory), put->bytes});
  auto beside = AlignedBytes::make(head.header_bytes + put->bytes);
  if (!beside) {
    put->how = put->object->named({Errc::out_of_memory, "there is no memory to write it from"});
    return finish(put);
  }
  put->beside = std::move(*beside);
  std::ranges::fill(put->beside.first(put->beside.size()), std::byte{});  // its end too, because all of it is written
  std::copy_n(put->memory, put->bytes, put->beside.data() + head.header_bytes);
  write(put, {head.offset, put->beside.data(), head.header_bytes + put->bytes});
}

void SegmentWriter::write(const std::shared_ptr<Put>& put, const transfer::Piece& piece) {
  context_.transfers.submit(transfer::Direction::write, put->file, {&piece, 1}, [this, put](Result<void> how) {
    put->how = std::move(how);
    if (--put->parts == 0) finish(put);
  });
}

void SegmentWriter::finish(const std::shared_ptr<Put>& put) {
  StoredObject& object = *put->object;
  const std::uint64_t block_bytes = context_.options.block_bytes;
  bool early = false;
  {
    const TableLocked lock = table_.lock();
    for (std::uint64_t at = put->offset; put->how && at < put->offset + put->bytes; at += block_bytes) {
      const std::size_t block = at / block_bytes;
      StoredObject::Writing& writing = *object.writing;
      if (writing.blocks_put[block]) continue;
      writing.blocks_put[block] = true;
      if (--writing.blocks_missing > 0) continue;
      writing.commits_when_put = committer_.commits(lock);
      early = context_.boot != Uuid{} && !object.head.compact() && object.state == ObjectState::writing;
    }
  }
  if (!early || !write_early_head(put)) report(put);
}

// What fails here fails again when the object is committed, which reports it.
Result<void> SegmentWriter::write_early_head(const std::shared_ptr<Put>& put) {
  StoredObject& object = *put->object;
  RecordHead head = written_head(object.record_head(), context_.boot);
  head.written_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  try {
    put->beside = AlignedBytes(object.head.header_bytes);
    std::ranges::copy(encode(head, *object.loaded->description, *object.loaded->sums), put->beside.data());
  } catch (const std::bad_alloc&) {
    return Error{Errc::out_of_memory, "there is no memory for its header"};
  }
  {
    const TableLocked lock = table_.lock();
    object.set_written(head);
  }
  const transfer::Piece piece{head.place.offset, put->beside.data(), put->beside.size()};
  context_.transfers.submit(transfer::Direction::write, put->file, {&piece, 1}, [this, put](const Result<void>& how) {
    {
      const TableLocked lock = table_.lock();
      put->object->early_head = static_cast<bool>(how);
      if (how) put->object->note_found();
    }
    report(put);
  });
  return {};
}

void SegmentWriter::report(const std::shared_ptr<Put>& put) {
  StoredObject& object = *put->object;
  {
    const TableLocked lock = table_.lock();
    --object.in_flight;
  }
  context_.done(put->token, put->how);
  const TableLocked lock = table_.lock();
  --object.puts;
  committer_.add_if_complete(lock, put->object);
  table_.end_transfer(lock);
}

std::uint64_t SegmentWriter::surviving(ObjectId id) const {
  const TableLocked lock = table_.lock();
  const SharedObject object = table_.find(lock, id);
  const bool there = object && object->state != ObjectState::failed &&
                     (object->early_head || object->state == ObjectState::persistent);
  return there ? object->head.sequence : 0;
}

}  // namespace ebb::storage
