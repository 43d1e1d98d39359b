#pragma once
// Registers the records of other processes in the table, at opening and, in a read-only store, later.
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

/// Thread safety: open() from one thread before the store is used; then refresh() and changes_seen() from any.
/// 1. Only the newest record of a version is ever offered.
class Recovery {
 public:
  struct Opened {
    ScannedStore scanned;
    std::vector<Found> found;            // ascending by name and version
    std::vector<SharedObject> outdated;  // records hidden by newer ones; already out of the table
  };

  Recovery(StoreContext& context, ObjectTable& table);

  Result<Opened> open();
  /// As in PersistentStorage.
  std::vector<Found> refresh();
  std::uint64_t changes_seen() const { return changes_seen_; }

 private:
  using Objects = std::vector<SharedObject>;
  void register_segment(const ScannedSegment& scanned, const std::vector<Damage>& damages, Objects& added);
  void leave_others_out(ScannedSegment& segment) const;
  void add_index();
  std::vector<Found> select_newest(Objects objects, Objects& outdated);

  StoreContext& context_;
  ObjectTable& table_;
  std::mutex refresh_mutex_;  // one refresh() at a time; guards the fields below except changes_seen_
  ChangeMark mark_;
  Newest newest_;            // of all records seen
  bool knows_index_ = true;  // or of those in segments alone: the first look again adds what the index listed
  std::map<std::uint64_t, std::uint64_t> scan_from_;  // by segment: new records may follow from here
  std::atomic<std::uint64_t> changes_seen_{0};
};

}  // namespace ebb::storage
