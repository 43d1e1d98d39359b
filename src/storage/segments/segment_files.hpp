#pragma once
// The segment files of a store: created, opened on demand, removed.
#include <algorithm>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/segments/file_transfers.hpp"

namespace ebb::storage {

/// Thread safety: every method may be called from any thread.
/// 1. mutex_ guards open_; no file call is made with it held.
/// 2. A file is closed when open_ and all users have released it.
class SegmentFiles {
 public:
  /// `directory` must outlive it.
  SegmentFiles(os::Files& files, const StoreDirectory& directory, bool direct, bool readonly)
      : files_(files), store_(directory), directory_(directory.path()), direct_(direct), readonly_(readonly) {}

  std::filesystem::path path(std::uint64_t segment) const;
  /// Creates a file of `bytes` with its head; if `synced`, its name is on stable storage. Errors: no_space, io_error,
  /// unsupported; the file does not exist then. All three methods return io_error if the directory was moved or
  /// replaced. `cached`: written through the page cache in any case.
  Result<SharedFile> make(const SegmentHead& head, std::uint64_t bytes, bool synced, bool cached = false);
  /// Errors: unknown_version (there is no such file), io_error.
  Result<SharedFile> open(std::uint64_t segment);
  /// Error: io_error.
  Result<void> remove(std::uint64_t segment);

 private:
  static constexpr std::size_t kMostOpen = 64;
  using Open = std::list<std::pair<std::uint64_t, SharedFile>>;
  Open::iterator find(std::uint64_t segment) { return std::ranges::find(open_, segment, &Open::value_type::first); }
  SharedFile keep_open(std::uint64_t segment, SharedFile file);
  Error refused(const std::filesystem::path& path, const char* what, int error) const;

  os::Files& files_;
  const StoreDirectory& store_;
  const std::filesystem::path directory_;
  const bool direct_, readonly_;
  std::mutex mutex_;
  Open open_;  // most recently used first
};

}  // namespace ebb::storage
