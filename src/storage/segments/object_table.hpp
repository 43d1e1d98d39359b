#pragma once
// The objects and segments of an open store, under one lock that all its parts share.
#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "storage/segments/stored_object.hpp"

namespace ebb::storage {

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
    ObjectId found = 1;
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
  std::vector<SharedObject> all(const Locked&) const;
  bool has_room(const Locked&, std::uint64_t bytes) const { return used_ <= capacity_ && bytes <= capacity_ - used_; }
  std::uint64_t capacity() const { return capacity_; }
  StorageUse use(const Locked&) const;

  std::map<std::uint64_t, SharedSegment>& segments(const Locked&) { return segments_; }
  std::size_t segment_count(const Locked&) const { return segments_.size(); }
  /// The segment that is being written, if any.
  SharedSegment current(const Locked&) const;
  Next& next(const Locked&) { return next_; }

  /// What is on the disk may differ from what the table says: no index is written.
  void doubt_disk(const Locked&) { doubted_ = true; }
  bool doubts_disk(const Locked&) const { return doubted_; }

  void begin_transfer(const Locked&, KeptObject& object);
  /// After it was reported; its object counts it no more.
  void end_transfer(const Locked&);
  /// Whether nothing new is taken: what is called while the last transfers end, is.
  bool refuses(const Locked&) const { return phase_ != Phase::open && in_flight_ == 0; }
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
  bool doubted_ = false;
};

}  // namespace ebb::storage
