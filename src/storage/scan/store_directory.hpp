#pragma once
// What makes a directory a store, and who may write to it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/files.hpp"
#include "storage/format/record.hpp"

namespace ebb::storage {

struct StoreDirectoryOptions {
  bool readonly = false;                   // nothing is made, no lock is taken; the store's own level holds
  Durability level = Durability::storage;  // of the store: one that is made gets it, one that is there must have it
  std::uint32_t user = own_user();         // whose all of it must be

  static std::uint32_t own_user() noexcept;
};

/// A directory that was found to be a store, or made one. Move-only; the lock goes with it.
///
/// Thread safety: every method may be called from any thread; announce_change() by one at a time.
class StoreDirectory {
 public:
  /// Absolute: it stays the same when the program goes elsewhere.
  const std::filesystem::path& path() const noexcept { return path_; }
  const StoreHead& head() const noexcept { return head_; }
  /// It was empty, or not there.
  bool created() const noexcept { return created_; }
  /// For who writes: whether the path still leads to this directory, and it has the file that keeps other writers out.
  /// Error io_error: it, or that file, was removed or replaced. What is written to open files then has no name.
  Result<void> in_place() const;
  /// For who writes: what other processes find in it has changed (ChangeMark reads it). Nothing if it is only read.
  void announce_change() const noexcept;

 private:
  friend class StoreOpening;
  platform::Files* files_ = nullptr;
  std::filesystem::path path_;
  StoreHead head_;
  bool created_ = false;
  platform::FileLock lock_;
  platform::FileStatus found_, locked_;  // the directory and its file `lock`, as they were opened
  std::string holder_;                   // of the lock: "process 17 on node3"
};

/// Makes the directory a store if it is not there or empty (what a crash left of making it counts as empty), unless
/// `readonly`. Each error names the directory or the file in it, and what to do:
/// - not_a_store: it is no directory, other files are in it, or (readonly) there is nothing
/// - unsupported: of a newer format
/// - not_permitted: it, or a file of the store, is another user's, or may be written by others, or is a symbolic link
/// - in_use: another process writes
/// - invalid_argument: the store is of another level
/// - damaged: the file `store` is not as it was written
/// - no_space, io_error
/// `files` must outlive the result.
Result<StoreDirectory> open_store_directory(platform::Files& files, const std::filesystem::path& directory,
                                            const StoreDirectoryOptions& options = {});

/// The head of the store that a directory is, if it is one: for who means to put something else there. Errors: as
/// above.
Result<std::optional<StoreHead>> find_store(platform::Files& files, const std::filesystem::path& directory);

/// Error in_use: who has a store open for writing, as far as can be seen. `what_to_do` ends the sentence.
Error in_use(platform::Files& files, const std::filesystem::path& directory, const std::string& what_to_do);

}  // namespace ebb::storage
