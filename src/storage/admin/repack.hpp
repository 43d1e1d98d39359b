#pragma once
// Packs anew what live snapshots need of ended ones, so that the rest of their bytes can go: part of `ebbtide gc`.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ebbtide/admin.hpp"
#include "os/clock.hpp"
#include "os/files.hpp"

namespace ebb::storage {

/// Snapshots that have ended, and of whose stored bytes live maps need less than half.
///
/// 1. What is needed is written as pieces of a new id, and is persistent before
/// 2. the maps that need it are written anew, and are persistent before
/// 3. the old pieces and maps are dropped.
/// So every snapshot restores the same after a crash at any moment, and what is left over then goes with the next
/// `collect`. A snapshot whose pieces are damaged stays as it is, and so does everything where damage may hide a map.
///
/// Takes the writer's lock if there is anything to do and it is not a dry run. Errors: those of
/// open_persistent_storage(). What went wrong with one snapshot is in its Repacked.
Result<std::vector<admin::Repacked>> repack_snapshots(os::Files& files, os::Clock& clock,
                                                      const std::filesystem::path& directory, bool dry_run);

}  // namespace ebb::storage
