#pragma once
// Giving back what a store's directory holds and nobody can ever have: what `ebbtide gc` does.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "storage/admin/inspect.hpp"

namespace ebb::storage {

/// As admin::Collected, with damage as a scan has it.
struct Collected {
  std::vector<admin::Removal> removals;
  std::vector<InspectedDamage> damages;         // known, and still there
  std::vector<std::filesystem::path> segments;  // files that are removed
  std::uint64_t left_over_files = 0;            // index.new, store.new
  /// On the disk, of all segments; after a dry run `after` is how it would be, at most.
  std::uint64_t allocated_before = 0, allocated_after = 0;
  bool ended = false;  // `progress` ended it: nothing was changed
};

/// Takes the writer's lock and, in this order: syncs what a killed process may have left in memory, for what stays is
/// called safe by the index, and what goes does so because of what stays; reads all heads; says of what is to go that
/// it is dropped, and of places that were never filled that there is nothing; punches holes there; cuts files behind
/// their last record; removes segments in which nothing lives (of the highest number only all behind its head: numbers
/// are never used again); writes the index anew. A crash at any moment leaves a store in which all that stays is, and
/// what goes is or is not. No record is moved. A version is not removed for `keep_last` newer ones that were not read
/// and found intact. Errors: those of open_store_directory(); io_error, no_space. A directory that is no store is not
/// made one.
Result<Collected> collect(platform::Files& files, const std::filesystem::path& directory,
                          const admin::GcOptions& options);

}  // namespace ebb::storage
