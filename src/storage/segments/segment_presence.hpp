#pragma once
// Whether the files of persistent objects still have their names in the directory. Writing and syncing a removed file
// succeeds, so it must be checked.
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Segments whose file is not in the directory, each returned once; of `written`, whose files are open, also those
/// whose file was replaced.
std::vector<SharedSegment> find_missing(const StoreContext& context, ObjectTable& table,
                                        const std::vector<SharedSegment>& written);
/// Names the missing file and the persistent checkpoints lost with it.
Error missing_error(const StoreContext& context, ObjectTable& table, const SharedSegment& segment);
/// Error io_error: the directory was moved or replaced, or a segment is missing.
Result<void> check_presence(const StoreContext& context, ObjectTable& table);

}  // namespace ebb::storage
