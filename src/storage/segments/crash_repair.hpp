#pragma once
// What a crash left half done, set right before a store is written again.
#include <vector>

#include "storage/scan/segment_scan.hpp"
#include "storage/segments/space_reclaimer.hpp"

namespace ebb::storage {

/// `outdated`: objects of records that a newer one hides; they are dropped. The result: damage that was not known.
/// Errors: those of taking the index away.
Result<std::vector<Damage>> repair_after_crash(StoreContext& context, ObjectTable& table, SpaceReclaimer& reclaimer,
                                               const ScannedStore& scanned, std::vector<SharedObject> outdated);

}  // namespace ebb::storage
