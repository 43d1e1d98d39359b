#pragma once
// Frees the disk space of records that can never be restored: `ebbtide gc`.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "storage/admin/inspect.hpp"

namespace ebb::storage {

/// As admin::Collected, with the damage of a scan.
struct Collected {
  std::vector<admin::Removal> removals;
  std::vector<InspectedDamage> damages;         // known damage that remains
  std::vector<std::filesystem::path> segments;  // files that are removed
  std::uint64_t left_over_files = 0;            // index.new, store.new
  /// Bytes on the disk of all segments; after a dry run, `after` is the most that would be left.
  std::uint64_t allocated_before = 0, allocated_after = 0;
  bool ended = false;   // `progress` stopped it: nothing was changed
  bool paired = false;  // as Inspection::paired
};

/// Takes the writer's lock. Then, in this order:
/// 1. syncs the writes that a killed process may have left in memory: records are removed because of those that stay,
///    which must therefore be durable;
/// 2. reads all heads;
/// 3. writes tombstones to records that are removed, and marks abandoned space as void;
/// 4. punches holes there, and truncates files after their last record;
/// 5. removes segments without live records (the head of the highest-numbered one stays: numbers are never reused);
/// 6. writes the index.
/// After a crash at any moment, all records that should stay exist; the others may or may not. No record is moved. Only
/// versions that were read and found intact count for `keep_last`. Errors: those of open_store_directory(); io_error,
/// no_space. A directory that is not a store does not become one.
Result<Collected> collect(os::Files& files, const std::filesystem::path& directory, const admin::GcOptions& options);

}  // namespace ebb::storage
