#pragma once
// Two directories of one store: a local one, and a shared one below it that the local one is a cache of.
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::storage {

/// Whether a file of a directory is such a mark: `pair`, or `pair.NAME` of a directory NAME that is one of several; or
/// what a crash left while one was written, which ends with ".new".
bool is_pair_file(std::string_view name);

/// A store's directory as its partner sees it, open for writing.
struct PairedDirectory {
  std::filesystem::path path;
  bool empty = false;  // it has no checkpoint
};

enum class Pairing : std::uint8_t {
  of_two,
  readonly,    // nothing is marked
  of_several,  // the local one has those of several shared ones, as the ranks of a node's pool have: its marks, a file
               // for each, only say where those are
};

/// Whether the directories may belong together, before they are marked so. Errors as of pair_directories().
Result<void> check_pair(os::Files& files, const PairedDirectory& local, const PairedDirectory& shared, Pairing how);

/// Marks the directories as belonging together, in a file `pair` of each that names the other's store, its absolute
/// path and its own side. A local directory without a checkpoint continues what the shared one has, and from then on is
/// its partner. Error invalid_argument, naming both directories: the local one has checkpoints, and belongs to another
/// shared directory, or to none though this one has checkpoints, or was left behind: another local directory has
/// continued from the shared one since, or the latter was made a store by itself; or they are the wrong way round.
/// Errors of the files: io_error, no_space, not_permitted, damaged.
Result<void> pair_directories(os::Files& files, const PairedDirectory& local, const PairedDirectory& shared,
                              Pairing how);

/// For who writes to a directory alone. Error invalid_argument: it is one of a pair, so what is written would be
/// missing in the other one, and newer than what that has. Errors of the files: as above.
Result<void> refuse_half_a_pair(os::Files& files, const std::filesystem::path& directory);

}  // namespace ebb::storage
