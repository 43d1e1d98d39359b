#pragma once
// Whether what is reported durable has a name in the directory at that moment. A file that was removed is written and
// synced as well as any other.
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Those of all segments that are not in the directory, each told of once; of `written`, to which the files are open,
/// also those in whose place there is another file.
std::vector<SharedSegment> find_missing(const StoreContext& context, ObjectTable& table,
                                        const std::vector<SharedSegment>& written);
/// That a segment is missing, and which durable checkpoints are lost with it.
Error missing_error(const StoreContext& context, ObjectTable& table, const SharedSegment& segment);
/// Error io_error: the directory is not in its place, or a segment is missing, now or before.
Result<void> check_presence(const StoreContext& context, ObjectTable& table);

}  // namespace ebb::storage
