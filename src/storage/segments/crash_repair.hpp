#pragma once
// What a writing process does to a store before it uses it, and when it closes it.
#include <vector>

#include "storage/scan/segment_scan.hpp"
#include "storage/segments/record_remover.hpp"

namespace ebb::storage {

/// Repairs what a crash left unfinished. `outdated`: records hidden by newer ones, which are dropped. Returns damage
/// that the scan did not know of; records that cannot be made to count are taken out of the table. Errors: the index
/// cannot be set aside, or a segment not be opened or synced.
Result<std::vector<Damage>> repair_after_crash(StoreContext& context, ObjectTable& table, RecordRemover& remover,
                                               const ScannedStore& scanned, std::vector<SharedObject> outdated);

/// Writes the index, which exists only while no process writes. If anything fails there is no index, and the next
/// process scans the segments.
void write_index(StoreContext& context, ObjectTable& table, const std::vector<Damage>& damages);

}  // namespace ebb::storage
