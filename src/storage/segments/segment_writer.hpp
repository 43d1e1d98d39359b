#pragma once
// Places objects in segments and writes their payloads.
#include <memory>
#include <mutex>

#include "storage/segments/committer.hpp"

namespace ebb::storage {

/// Thread safety: every method may be called from any thread.
/// 1. begin_mutex_ is held throughout begin(), so that one segment is created at a time; it is taken before the table's
/// lock.
/// 2. An object's `sums` are written by the puts of their ranges, before those are reported, and not after the object
/// is ready.
/// 3. An early head is written by the put that completes its object, before that is reported: so nothing is dropped, or
/// committed, while its early head is under way.
class SegmentWriter {
 public:
  SegmentWriter(StoreContext& context, ObjectTable& table, Committer& committer)
      : context_(context), table_(table), committer_(committer) {}

  /// As in PersistentStorage.
  Result<void> begin(ObjectId id, std::shared_ptr<const Description> description, bool cached);
  Result<void> put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes);
  std::uint64_t surviving(ObjectId id) const;

 private:
  struct Put;
  static constexpr std::uint64_t kSmall = 256 << 10;  // a record of at most this is written in one transfer
  static constexpr std::uint64_t kCachedPart = 1;     // of a segment's length, of those through the page cache

  Result<void> check_room(const TableLocked& lock, const StoredObject& object) const;
  Result<SharedSegment> room_for(TableLocked& lock, std::uint64_t record_bytes, bool cached);
  Result<SharedSegment> new_segment(TableLocked& lock, std::uint64_t record_bytes, bool cached);
  void start(const std::shared_ptr<Put>& put);
  static void hash(const Put& put);
  void write_small(const std::shared_ptr<Put>& put);
  void write(const std::shared_ptr<Put>& put, const transfer::Piece& piece);
  void finish(const std::shared_ptr<Put>& put);
  Result<void> write_early_head(const std::shared_ptr<Put>& put);
  void report(const std::shared_ptr<Put>& put);

  StoreContext& context_;
  ObjectTable& table_;
  Committer& committer_;
  std::mutex begin_mutex_;
};

}  // namespace ebb::storage
