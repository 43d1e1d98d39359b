#pragma once
// Removing records: first a tombstone or a list of drops, then the space, then whole segment files.
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

inline constexpr std::size_t kSlab = 4 << 20;  // bytes of headers or tombstones in one transfer

/// Thread safety: used by one thread at a time (the opening one, the committer, the closing one), except failed_names()
/// and methods with a TableLocked.
/// 1. Only blocks that one record has to itself are rewritten: its first sector becomes a tombstone. Of records that
///    share blocks, lists of drops are appended to their segment, and go with it.
/// 2. The space of a dropped record is freed after its tombstone is on disk, or with its whole segment.
/// 3. A record stays in its segment's records until it is off the disk.
/// 4. No segment is removed while its drops may hide an older record.
class RecordRemover {
 public:
  RecordRemover(StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// `at_once`: writes drops now, even if the whole segment could be removed.
  void drop(std::vector<SharedObject> drops, bool at_once = false);
  /// Drops objects about to be reported as failed, because this process may be killed before it closes. A failure is
  /// retried at close. The bytes stay until then, because the caller may ask for them. Returns the result of the sync.
  Result<void> withdraw(const SharedSegment& segment, const SharedFile& file, const std::vector<SharedObject>& objects);
  /// Fails a segment: objects in it that are not persistent never will be, and that is reported.
  void fail(const SharedSegment& segment, const Error& error);
  /// Truncates the files of closed segments with nothing unfinished behind the last record, and closes them.
  void trim_closed();
  /// Removes files without records.
  void remove_empty();

  /// Whether a segment without records is removed.
  bool is_removable(const TableLocked& lock, const SegmentState& segment) const;
  /// There may be unknown records that reappear, so segments are no longer removed.
  void retain_segments(const TableLocked&) { retains_segments_ = true; }
  /// Drops that failed: the next process will find those records whose headers may be on the disk.
  const std::vector<SharedObject>& failed(const TableLocked&) const { return failed_; }
  /// To retry them.
  std::vector<SharedObject> take_failed(const TableLocked&) { return std::exchange(failed_, {}); }
  /// Of those that the next process will find.
  std::vector<std::string> failed_names() const;

 private:
  struct Blocks {
    AlignedBytes slab;
    std::map<std::uint64_t, std::byte*> by_offset;
  };
  void drop(const SharedSegment& segment, const std::vector<SharedObject>& drops);
  std::vector<SharedObject> drop_on_disk(const SharedSegment& segment, const std::vector<SharedObject>& drops);
  Result<void> write_drops(const SharedSegment& segment, const SharedFile& file,
                           const std::vector<SharedObject>& objects);
  Result<Blocks> read_blocks(const SharedFile& file, const std::vector<SharedObject>& objects);
  Result<void> write_tombstones(const SharedFile& file, const std::vector<SharedObject>& objects, const Blocks& blocks);
  Result<void> append_list(const SharedSegment& segment, const SharedFile& file,
                           const std::vector<SharedObject>& objects);
  Result<std::uint64_t> take_room(const SharedSegment& segment, const SharedFile& file, std::uint64_t bytes);

  StoreContext& context_;
  ObjectTable& table_;
  std::vector<SharedObject> failed_;  // guarded by the table's lock
  bool retains_segments_ = false;     // guarded by the table's lock
};

}  // namespace ebb::storage
