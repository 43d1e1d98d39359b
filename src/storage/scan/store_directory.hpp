#pragma once
// The directory of a store: how it is recognised, created and locked.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/files.hpp"
#include "storage/format/record.hpp"

namespace ebb::storage {

struct StoreDirectoryOptions {
  bool readonly = false;                   // creates nothing and takes no lock; the level is the store's own
  Durability level = Durability::storage;  // of the store: a new one gets it, an existing one must have it
  std::uint32_t user = own_user();         // who must own all of it

  static std::uint32_t own_user() noexcept;
};

/// A directory that is a store. Move-only; it owns the lock.
///
/// Thread safety: every method may be called from any thread; announce_change() from one at a time.
class StoreDirectory {
 public:
  /// Absolute, so that a change of the working directory does not matter.
  const std::filesystem::path& path() const noexcept { return path_; }
  const StoreHead& head() const noexcept { return head_; }
  /// Whether this process made the directory a store.
  bool created() const noexcept { return created_; }
  /// Takes away the store that this process has made, and the directory too if it made that. Nothing was stored in it.
  void unmake() const noexcept;
  /// For a writer: whether the path still leads to this directory, and it still has the lock file. Error io_error: one
  /// of them was removed or replaced, so that what is written to open files has no name.
  Result<void> in_place() const;
  /// For a writer: tells readers that the store has changed (see ChangeMark). Does nothing if it is read only.
  void announce_change() const noexcept;

 private:
  friend class StoreOpening;
  os::Files* files_ = nullptr;
  std::filesystem::path path_;
  StoreHead head_;
  bool created_ = false, made_directory_ = false;
  os::FileLock lock_;
  os::FileStatus found_, locked_;  // the directory and its file `lock` when opened
  std::string holder_;             // of the lock: "process 17 on node3"
};

/// Makes the directory a store if it is missing or empty (remains of an interrupted creation count as empty), unless
/// `readonly`. Each error names the directory or the file in it, and what to do:
/// - not_a_store: it is not a directory, has other files, or (readonly) is missing or empty
/// - unsupported: of a newer format
/// - not_permitted: it or a file of the store belongs to another user, is writable by others, or is a symbolic link
/// - in_use: another process writes
/// - invalid_argument: the store is of another level
/// - damaged: the file `store` is damaged
/// - no_space, io_error
/// `files` must outlive the result.
Result<StoreDirectory> open_store_directory(os::Files& files, const std::filesystem::path& directory,
                                            const StoreDirectoryOptions& options = {});

/// The head of the store in a directory, if it is one, for a caller that wants to use the directory otherwise. Errors:
/// as above.
Result<std::optional<StoreHead>> find_store(os::Files& files, const std::filesystem::path& directory);

/// Error in_use: which process has a store open for writing, if known. `what_to_do` ends the sentence.
Error in_use(os::Files& files, const std::filesystem::path& directory, const std::string& what_to_do);

}  // namespace ebb::storage
