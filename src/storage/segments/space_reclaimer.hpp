#pragma once
// What is done to dropped records, and to segment files in which nothing lives.
#include <string>
#include <utility>
#include <vector>

#include "storage/segments/tombstone_writer.hpp"

namespace ebb::storage {

/// Thread safety: used by one thread at a time, as TombstoneWriter; methods with a Locked, and failed_names(), from
/// any.
/// 1. The room of a dropped record goes only when the disk has the head that says so, or with its whole segment.
/// 2. A record stays in its segment's records until the disk gave it up.
/// 3. No segment is removed while the drops in it may hide an older record.
class SpaceReclaimer {
 public:
  SpaceReclaimer(StoreContext& context, ObjectTable& table, TombstoneWriter& tombstones)
      : context_(context), table_(table), tombstones_(tombstones) {}

  /// `at_once`: each gets its own head, also where all of its segment is about to be removed.
  void drop(std::vector<SharedObject> drops, bool at_once = false);
  /// Files of closed segments with nothing unfinished end where their records do, and are closed.
  void trim_closed();
  /// Removes files in which nothing lives.
  void remove_empty();

  /// Whether a segment is removed when nothing lives in it.
  bool removes(const Locked& lock, const KeptSegment& segment);
  /// There may be records that are not known, and are met again one day: segments stay.
  void keep_segments(const Locked&) { keeps_segments_ = true; }
  /// Drops that failed: the next process finds those records.
  const std::vector<SharedObject>& failed(const Locked&) const { return failed_; }
  /// To be dropped once more.
  std::vector<SharedObject> take_failed(const Locked&) { return std::exchange(failed_, {}); }
  std::vector<std::string> failed_names() const;

 private:
  void drop(const SharedSegment& segment, const std::vector<SharedObject>& drops);
  std::vector<SharedObject> bury(const SharedSegment& segment, const std::vector<SharedObject>& drops);

  StoreContext& context_;
  ObjectTable& table_;
  TombstoneWriter& tombstones_;
  std::vector<SharedObject> failed_;  // guarded by the table's lock
  bool keeps_segments_ = false;       // likewise
};

}  // namespace ebb::storage
