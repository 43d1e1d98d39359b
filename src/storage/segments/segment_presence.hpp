#pragma once
// Whether what is reported durable has a name in the directory at that moment. A file that was removed is written and
// synced as well as any other.
#include <set>
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Thread safety: every method may be called from any thread.
/// 1. A segment that was found to be missing stays so, whatever is in its place later.
class SegmentPresence {
 public:
  SegmentPresence(const StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// Those of all segments that are not in the directory, each told of once; of `written`, to which the files are open,
  /// also those in whose place there is another file.
  std::vector<SharedSegment> find_missing(const std::vector<SharedSegment>& written);
  /// That a segment is missing, and which durable checkpoints are lost with it.
  Error missing(const SharedSegment& segment) const;
  /// Error io_error: a segment is missing, now or before.
  Result<void> check();

 private:
  bool is_there(const SharedSegment& segment, const std::set<std::uint64_t>* listed) const;

  const StoreContext& context_;
  ObjectTable& table_;
};

}  // namespace ebb::storage
