#pragma once
// Removing records: by heads which say that they do not count, then their room, then whole segment files.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

inline constexpr std::size_t kSlab = 4 << 20;  // bytes of headers, or of drops, in one transfer

/// Thread safety: used by one thread at a time: the one that opens the store, the committer, the one that closes it.
/// Methods with a Locked, and failed_names(), from any thread.
/// 1. Only the first 4096 bytes of a record are overwritten, and not where another record is.
/// 2. The room of a dropped record goes only when the disk has the head that says so, or with its whole segment.
/// 3. A record stays in its segment's records until the disk gave it up.
/// 4. No segment is removed while the drops in it may hide an older record.
class RecordRemover {
 public:
  RecordRemover(StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// `at_once`: each gets its own head, also where all of its segment is about to be removed.
  void drop(std::vector<SharedObject> drops, bool at_once = false);
  /// Of what is about to be reported lost, for this process may be killed before it closes. If it fails: once more when
  /// the store closes. Their bytes stay until then, for the caller may ask for them. The error is that of the sync.
  Result<void> withdraw(const SegmentState& segment, const SharedFile& file, const std::vector<SharedObject>& objects);
  /// Breaks a segment: all in it that is not durable never will be, and its callers are told.
  void fail(const SharedSegment& segment, const Error& error);
  /// Files of closed segments with nothing unfinished end where their records do, and are closed.
  void trim_closed();
  /// Removes files in which nothing lives.
  void remove_empty();

  /// Whether a segment is removed when nothing lives in it.
  bool is_removable(const Locked& lock, const SegmentState& segment) const;
  /// There may be records that are not known, and are met again one day: segments stay.
  void retain_segments(const Locked&) { retains_segments_ = true; }
  /// Drops that failed: the next process finds those records.
  const std::vector<SharedObject>& failed(const Locked&) const { return failed_; }
  /// To be dropped once more.
  std::vector<SharedObject> take_failed(const Locked&) { return std::exchange(failed_, {}); }
  std::vector<std::string> failed_names() const;

 private:
  void drop(const SharedSegment& segment, const std::vector<SharedObject>& drops);
  std::vector<SharedObject> drop_on_disk(const SharedSegment& segment, const std::vector<SharedObject>& drops);
  Result<void> write_tombstones(const SharedFile& file, const std::vector<SharedObject>& objects);

  StoreContext& context_;
  ObjectTable& table_;
  std::vector<SharedObject> failed_;  // guarded by the table's lock
  bool retains_segments_ = false;     // likewise
};

}  // namespace ebb::storage
