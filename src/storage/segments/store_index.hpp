#pragma once
// The index: it is there only while no process writes.
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// When a store is opened to write: from now on the index does not say what there is.
Result<void> set_index_aside(StoreContext& context);
/// When it is closed. Whatever goes wrong, there is none, and all is found by reading the segments.
void write_index(StoreContext& context, ObjectTable& table, const std::vector<Damage>& damages);

}  // namespace ebb::storage
