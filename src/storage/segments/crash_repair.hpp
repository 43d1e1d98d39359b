#pragma once
// What a process that writes does to a store before it is used, and when it is closed.
#include <vector>

#include "storage/scan/segment_scan.hpp"
#include "storage/segments/record_remover.hpp"

namespace ebb::storage {

/// Sets right what a crash left half done. `outdated`: objects of records that a newer one hides; they are dropped. The
/// result: damage that was not known. Errors: those of taking the index away.
Result<std::vector<Damage>> repair_after_crash(StoreContext& context, ObjectTable& table, RecordRemover& remover,
                                               const ScannedStore& scanned, std::vector<SharedObject> outdated);

/// The index, which is there only while no process writes. Whatever goes wrong, there is none, and all is found by
/// reading the segments.
void write_index(StoreContext& context, ObjectTable& table, const std::vector<Damage>& damages);

}  // namespace ebb::storage
