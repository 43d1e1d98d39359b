#pragma once
// The objects and segments of an open store, under one lock that all its parts share.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
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

/// A segment file. Guarded by the table's lock, but for `number`, which is constant.
struct SegmentState {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;               // that its file may hold
  std::uint64_t end = platform::kBlock;  // where the next record goes
  SharedFile file;       // held from its making until no more header is to come: a sync that is asked of
                         // a descriptor tells of all writes since that one was opened
  bool closed = false;   // no more records
  bool broken = false;   // a sync or header failed: it is never written again, drops excepted
  bool missing = false;  // its file was removed or replaced by somebody else, and that was told
  bool suspect = false;  // damage was found in it: it stays as it is, drops excepted
  std::map<std::uint64_t, SharedObject> records;  // by offset: all that is not known to be dead
};
using SharedSegment = std::shared_ptr<SegmentState>;

/// An object and its record. `id`, `history`, `segment` and the head's place and sizes are constant once it is in the
/// table; the table's lock guards the rest, but for `sums` (see SegmentWriter 2 and ObjectReader 3).
///
///   writing --all ranges reported--> ready --taken by the committer--> committing --header durable--> persistent
///   writing, ready, committing --its segment broke, or the store closed--> failed
struct StoredObject {
  enum class State : std::uint8_t { writing, ready, committing, persistent, failed } state = State::writing;
  ObjectId id = 0;
  std::string history;
  std::shared_ptr<const Description> description;  // none: on the disk, or handed out
  RecordHead head;
  SharedSegment segment;
  std::shared_ptr<std::vector<Checksum>> sums;              // none: on the disk
  std::vector<bool> blocks_put;                             // which blocks were reported well
  std::size_t blocks_missing = 0;                           // how many were not
  std::size_t puts = 0;                                     // under way, or being reported
  std::uint64_t commits_when_put = 0;                       // the committer's count of calls when all of it was put
  std::size_t in_flight = 0;                                // puts and gets not reported
  std::vector<std::shared_ptr<RangeRead>> awaiting_header;  // gets: the first of them is having the header read
  bool description_asked = false;                           // its description was asked for
  bool may_be_on_disk = false;                              // its header may be on the disk
  bool dropped = false;
  bool abandoned = false;  // its bytes could not be read: it is left until it is written anew
  Error error;             // of one that failed

  /// 'version 3 of "adjoint"'
  std::string name() const { return "version " + std::to_string(head.version) + " of \"" + history + "\""; }
  std::uint64_t payload_offset() const { return head.place.offset + head.header_bytes; }
  std::uint64_t space() const { return platform::round_up(head.payload_bytes); }
  Error named(const Error& why) const { return {why.code, name() + ": " + why.message}; }
  Error was_dropped() const { return {Errc::unknown_version, name() + " was dropped"}; }
  void fail(const Error& why) {
    state = State::failed;
    error = named(why);
  }
};

/// The table's lock, held; only ObjectTable makes one. A function with a `const Locked&` needs the lock throughout, one
/// with a `Locked&` gives it away meanwhile, and any other is called without it.
class Locked : public std::unique_lock<std::mutex> {
  friend class ObjectTable;
  explicit Locked(std::mutex& mutex) : std::unique_lock<std::mutex>(mutex) {}
};

/// Thread safety: every method may be called from any thread; close() from one.
/// 1. mutex_ guards all fields, every object and segment, and what the store's other parts say it does. No file call
///    and no callback is made with it held, and whoever holds it waits for nothing but the changes that it guards.
/// 2. used_ is the sum of the objects' space.
/// 3. A record's place is never given to another: the end of a segment only grows.
/// 4. The segment that is being written, if there is one, is the last; all others are closed.
class ObjectTable {
 public:
  /// The numbers that the next ones get.
  struct Next {
    std::uint64_t segment = 1, sequence = 1;
    ObjectId recovered = 1;
  };

  explicit ObjectTable(std::uint64_t capacity) : capacity_(capacity) {}
  ~ObjectTable() {
    for (auto& [number, segment] : segments_) segment->records.clear();  // they hold each other
  }

  Locked lock() const { return Locked(mutex_); }

  /// Nothing: there is none of this id.
  SharedObject find(const Locked&, ObjectId id) const;
  SharedObject find(ObjectId id) const { return find(lock(), id); }
  /// It is in its segment's records already, or will be.
  void add(const Locked&, const SharedObject& object);
  /// Out of the caller's sight: only its segment has it still. Throws std::logic_error if it has transfers under way.
  SharedObject remove(const Locked&, ObjectId id);
  const std::unordered_map<ObjectId, SharedObject>& objects(const Locked&) const { return objects_; }
  bool has_room(const Locked&, std::uint64_t bytes) const { return used_ <= capacity_ && bytes <= capacity_ - used_; }
  std::uint64_t capacity() const { return capacity_; }
  StorageUse use(const Locked&) const;

  std::map<std::uint64_t, SharedSegment>& segments(const Locked&) { return segments_; }
  const std::map<std::uint64_t, SharedSegment>& segments(const Locked&) const { return segments_; }
  SharedFile file_of(const SegmentState& segment) const {
    const Locked guard = lock();
    return segment.file;
  }
  /// The segment that is being written, if any.
  SharedSegment current(const Locked&) const;
  Next& next(const Locked&) { return next_; }

  /// What is on the disk may differ from what the table says: no index is written.
  void invalidate_index(const Locked&) { index_valid_ = false; }
  bool is_index_valid(const Locked&) const { return index_valid_; }

  void begin_transfer(const Locked&, StoredObject& object);
  /// After it was reported; its object counts it no more.
  void end_transfer(const Locked&);
  /// Whether nothing new is taken: what is called while the last transfers end, is.
  bool is_stopped(const Locked&) const { return phase_ != Phase::open && in_flight_ == 0; }
  bool is_closed(const Locked&) const { return phase_ == Phase::closed; }
  /// Waits for all transfers, and takes no more. False if it was closed already.
  bool close();

 private:
  enum class Phase : std::uint8_t { open, closing, closed };  // closing: until no transfer is left

  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;                        // in_flight_ became 0
  std::unordered_map<ObjectId, SharedObject> objects_;  // guarded by mutex_, as all that follows
  std::map<std::uint64_t, SharedSegment> segments_;     // by number
  std::uint64_t used_ = 0;
  std::size_t in_flight_ = 0;  // transfers that were not reported, or are being
  Next next_;
  Phase phase_ = Phase::open;
  bool index_valid_ = true;
};

}  // namespace ebb::storage
