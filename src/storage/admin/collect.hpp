#pragma once
// Giving back what a store's directory holds and nobody can ever have: what `ebbtide gc` does.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "storage/admin/inspect.hpp"

namespace ebb::storage {

struct CollectOptions {
  /// As in ebb::Options; what was read and found intact counts.
  std::uint64_t keep_last = 0, keep_every = 0;
  bool damaged = false;        // what is damaged goes too; all payloads are read to find it
  bool dry_run = false;        // nothing is written
  unsigned threads = 2;        // that read
  ReadProgress progress = {};  // of payloads that are read
};

/// A checkpoint, or what was to be one, and why it goes.
struct Removal {
  enum class Why { superseded, retention, damaged } why = Why::superseded;
  std::optional<std::string> history;
  std::optional<Version> version;
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // in the file
};

struct Collected {
  std::vector<Removal> removals;
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
                          const CollectOptions& options);

}  // namespace ebb::storage
