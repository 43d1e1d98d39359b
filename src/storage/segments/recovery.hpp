#pragma once
// What other processes left in a store, or add to it, enters the table.
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "storage/scan/change_mark.hpp"
#include "storage/scan/newest.hpp"
#include "storage/scan/segment_scan.hpp"
#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Thread safety: open() by one thread, before the store is used; refresh() and changes_seen() from any, then.
/// 1. Of the records of one name the newest counts; another one is never offered, not even later.
class Recovery {
 public:
  struct Opened {
    ScannedStore scanned;
    std::vector<Found> found;            // ascending by name and version
    std::vector<SharedObject> outdated;  // older writings of these, or of what was dropped: out of the table already
  };

  Recovery(StoreContext& context, ObjectTable& table);

  Result<Opened> open();
  /// As PersistentStorage.
  std::vector<Found> refresh();
  std::uint64_t changes_seen() const { return changes_seen_; }

 private:
  using Objects = std::vector<SharedObject>;
  Objects register_segment(const ScannedSegment& scanned, const std::vector<Damage>& damages);
  std::vector<Found> select_newest(Objects objects, Objects& outdated);

  StoreContext& context_;
  ObjectTable& table_;
  std::mutex refresh_mutex_;  // one refresh() at a time; guards all that follows but changes_seen_
  ChangeMark mark_;
  Newest newest_;                                     // of all that was met
  std::map<std::uint64_t, std::uint64_t> scan_from_;  // of each segment, from where there may be something new
  std::atomic<std::uint64_t> changes_seen_{0};
};

}  // namespace ebb::storage
