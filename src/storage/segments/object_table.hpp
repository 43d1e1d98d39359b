#pragma once
// The objects and segments of an open store, under one lock that its parts share.
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <string>
#include <unordered_map>
#include <vector>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/segments/file_transfers.hpp"
#include "storage/storage.hpp"

namespace ebb::storage {

struct StoredObject;
struct RangeRead;
using SharedObject = std::shared_ptr<StoredObject>;

/// The records of a segment, by offset. They come in that order, but for few, so a row of them takes the least memory.
class RecordRow {
 public:
  struct RowEntry {
    std::uint64_t offset = 0;
    SharedObject object;  // null: it was erased
  };
  /// False: there is one.
  bool add(std::uint64_t offset, SharedObject object);
  /// Null: there is none.
  SharedObject find(std::uint64_t offset) const;
  void erase(std::uint64_t offset);
  void clear() { row_.clear(), many_ = 0; }
  bool empty() const { return many_ == 0; }
  std::size_t size() const { return many_; }
  /// Ascending.
  auto objects() const {
    return row_ | std::views::filter([](const RowEntry& one) { return one.object != nullptr; }) |
           std::views::transform([](const RowEntry& one) -> const SharedObject& { return one.object; });
  }

 private:
  std::deque<RowEntry> row_;
  std::size_t many_ = 0;
};

/// A segment file. Guarded by the table's lock, except `store` and `number`, which are constant.
struct SegmentState {
  Uuid store{};
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;         // that the file may hold
  std::uint64_t end = os::kBlock;  // offset of the next record
  SharedFile file;                 // open from creation until the last header is written: a sync reports
                                   // failed writes only since its descriptor was opened
  bool closed = false;             // no more records
  bool broken = false;             // a sync or header failed: only drops are written to it
  bool missing = false;            // its file was removed or replaced from outside, and that was reported
  bool suspect = false;            // it has damage: only drops are written to it
  bool head_synced = false;        // the file's own head is on the disk; by the committer alone
  std::uint64_t sequence = 0;      // the highest that the next process will find in it, of a dropped record too
  RecordRow records;               // all that the disk may still have
  // Small objects that the committer has yet to place here, together. A block is set aside for each.
  std::unordered_map<std::uint64_t, SharedObject> unplaced;

  bool has_room(std::uint64_t record_bytes) const { return end + record_bytes + unplaced.size() * os::kBlock <= bytes; }
};
using SharedSegment = std::shared_ptr<SegmentState>;

/// The head of a live record but for what its segment says, in few bytes: there may be millions.
struct StoredHead {
  std::uint64_t offset = 0;  // in its segment; 0: it has no place yet
  std::uint64_t header_bytes = 0, payload_bytes = 0, record_bytes = 0;
  std::uint64_t sequence = 0;
  std::int64_t version = 0;
  std::int64_t written_ns = 0;
  std::uint32_t name_bytes = 0, regions = 0, metadata_bytes = 0, block_bytes = 0;
  Checksum body{};

  StoredHead() = default;
  explicit StoredHead(const RecordHead& head);
  bool compact() const { return header_bytes < kCompactBelow; }
  bool shares_block() const { return record_bytes % os::kBlock != 0 || offset % os::kBlock != 0; }
};

enum class ObjectState : std::uint8_t { writing, ready, committing, persistent, failed };

/// An object and its record. `id`, `history`, `segment` and the head's place and sizes are constant once it is in the
/// table; the table's lock guards the rest, except `loaded->sums` (see SegmentWriter 2 and ObjectReader 3). A small
/// object has a compact record, whose place is constant once the committer has given it one; its payload is held until
/// it is persistent.
///
///   writing --all ranges reported--> ready --taken by the committer--> committing --header durable--> persistent
///   writing, ready, committing --its segment failed, or the store closed--> failed
struct StoredObject {
  /// What only an object has that is not persistent.
  struct Writing {
    std::vector<bool> blocks_put;                        // blocks whose put succeeded
    std::size_t blocks_missing = 0;                      // the number of others
    std::uint64_t commits_when_put = 0;                  // Committer::commits() when the last block was put
    std::shared_ptr<const std::vector<std::byte>> held;  // a small object's payload
    std::unique_ptr<const Error> error;                  // why it failed
  };
  /// What memory has of its header.
  struct Loaded {
    std::shared_ptr<const Description> description;           // null: on disk, or returned to the caller
    std::shared_ptr<std::vector<Checksum>> sums;              // null: on disk, or in its header
    std::vector<std::shared_ptr<RangeRead>> awaiting_header;  // gets; the first one reads the header
  };

  ObjectState state = ObjectState::writing;
  bool description_asked = false;  // load_description() was called
  bool may_be_on_disk = false;     // its header may have been written
  bool early_head = false;         // its header was written before a sync, and says so
  bool dropped = false;
  bool abandoned = false;       // unreadable: left on disk until its version is written again
  std::uint32_t puts = 0;       // in flight, or being reported
  std::uint32_t in_flight = 0;  // puts and gets not reported yet
  ObjectId id = 0;
  std::string history;
  StoredHead head;
  SharedSegment segment;
  std::unique_ptr<Writing> writing;  // null: it is persistent
  std::unique_ptr<Loaded> loaded;    // null: nothing

  /// 'version 3 of "adjoint"'
  std::string name() const { return "version " + std::to_string(head.version) + " of \"" + history + "\""; }
  bool placed() const { return head.offset != 0; }
  std::uint64_t payload_offset() const { return head.offset + head.header_bytes; }
  RecordPlace place() const { return {segment->store, segment->number, head.offset}; }
  /// As the disk has it.
  RecordHead record_head() const;
  Loaded& load() {
    if (!loaded) loaded = std::make_unique<Loaded>();
    return *loaded;
  }
  std::shared_ptr<std::vector<Checksum>> sums() const { return loaded ? loaded->sums : nullptr; }
  std::uint64_t space() const { return os::round_up(head.payload_bytes); }
  Error named(const Error& why) const { return {why.code, name() + ": " + why.message}; }
  Error was_dropped() const { return {Errc::unknown_version, name() + " was dropped"}; }
  /// What its head says before it is written. The other fields are constant, and read without the lock.
  void set_written(const RecordHead& written) {
    head.written_ns = written.written_ns;
    head.name_bytes = written.name_bytes;
    head.regions = written.regions;
    head.metadata_bytes = written.metadata_bytes;
    head.body = written.body;
    may_be_on_disk = true;
  }
  /// The next process finds it, even if this one is killed now.
  void note_found() const { segment->sequence = std::max(segment->sequence, head.sequence); }
  void fail(const Error& why) {
    state = ObjectState::failed;
    writing->error = std::make_unique<const Error>(named(why));
  }
};

/// Proof that the table's lock is held; only ObjectTable makes one. A function that takes a `const TableLocked&` needs
/// the lock, one that takes a `TableLocked&` may release it meanwhile, and any other function is called without the
/// lock.
class TableLocked : public std::unique_lock<std::mutex> {
  friend class ObjectTable;
  explicit TableLocked(std::mutex& mutex) : std::unique_lock<std::mutex>(mutex) {}
};

/// Thread safety: every method may be called from any thread; close() from one.
/// 1. mutex_ guards all fields, every object and segment, and the fields of other parts that say so. No file operation
///    and no callback runs with it held.
/// 2. used_ is the sum of the objects' space.
/// 3. No two records ever get the same place: the end of a segment only grows, by whole blocks.
/// 4. All segments but those of current_ are closed. None need not have the highest number: the names of files may be
/// anything.
class ObjectTable {
 public:
  /// The next unused numbers.
  struct Next {
    std::uint64_t segment = 1, sequence = 1;
    ObjectId recovered = 1;
  };

  explicit ObjectTable(std::uint64_t capacity) : capacity_(capacity) {}
  ~ObjectTable() {
    for (auto& [number, segment] : segments_) {  // they own each other
      segment->records.clear();
      segment->unplaced.clear();
    }
  }

  TableLocked lock() const { return TableLocked(mutex_); }

  /// Null: there is no such object.
  SharedObject find(const TableLocked&, ObjectId id) const;
  SharedObject find(ObjectId id) const { return find(lock(), id); }
  void reserve(const TableLocked&, std::size_t objects) { objects_.reserve(objects); }
  /// The caller adds it to its segment's records.
  void add(const TableLocked&, const SharedObject& object);
  /// Null: there is none. Its segment keeps it. Throws std::logic_error if it has transfers in flight.
  SharedObject remove(const TableLocked&, ObjectId id);
  const std::unordered_map<ObjectId, SharedObject>& objects(const TableLocked&) const { return objects_; }
  bool has_room(const TableLocked&, std::uint64_t bytes) const {
    return used_ <= capacity_ && bytes <= capacity_ - used_;
  }
  std::uint64_t capacity() const { return capacity_; }
  StorageUse use(const TableLocked&) const;

  std::map<std::uint64_t, SharedSegment>& segments(const TableLocked&) { return segments_; }
  const std::map<std::uint64_t, SharedSegment>& segments(const TableLocked&) const { return segments_; }
  SharedFile file_of(const SegmentState& segment) const {
    const TableLocked guard = lock();
    return segment.file;
  }
  /// The segment that receives new records, or null; `cached`: those that are written through the page cache.
  SharedSegment current(const TableLocked&, bool cached) const {
    const SharedSegment& one = current_.at(cached);
    return one && !one->closed ? one : nullptr;
  }
  /// Adds a segment, which becomes the current one. The one before is closed.
  void set_current(const TableLocked&, SharedSegment segment, bool cached);
  Next& next(const TableLocked&) { return next_; }

  /// The disk may differ from the table, so no index is written at close.
  void invalidate_index(const TableLocked&) { index_valid_ = false; }
  bool is_index_valid(const TableLocked&) const { return index_valid_; }

  void begin_transfer(const TableLocked&, StoredObject& object);
  /// After it was reported. The caller has decremented the object's count.
  void end_transfer(const TableLocked&);
  /// Closing, and nothing is in flight. Callbacks of the last transfers may still start new ones.
  bool is_stopped(const TableLocked&) const { return phase_ != Phase::open && in_flight_ == 0; }
  bool is_closed(const TableLocked&) const { return phase_ == Phase::closed; }
  /// Waits for all transfers, then refuses new ones. False if it was closed already.
  bool close();

 private:
  enum class Phase : std::uint8_t { open, closing, closed };  // closing: waits for transfers

  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;                        // in_flight_ became 0
  std::unordered_map<ObjectId, SharedObject> objects_;  // guarded by mutex_, as are the fields below
  std::map<std::uint64_t, SharedSegment> segments_;     // by number
  std::array<SharedSegment, 2> current_;                // by `cached`; closed if it failed; null at first
  std::uint64_t used_ = 0;
  std::size_t in_flight_ = 0;  // transfers whose report has not returned
  Next next_;
  Phase phase_ = Phase::open;
  bool index_valid_ = true;
};

}  // namespace ebb::storage
