#pragma once
// Copying what was written to files in the scratch directory to the files they stand for.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb::veloc {

/// A file and its copy in the scratch directory. The copy has no name, so it is gone with the process. Thread safety:
/// every method from any thread, waiting for the disk.
class CachedFile {
 public:
  static Result<std::shared_ptr<CachedFile>> open(const std::filesystem::path& scratch,
                                                  const std::filesystem::path& path, int flags, unsigned mode);
  CachedFile(const CachedFile&) = delete;
  CachedFile& operator=(const CachedFile&) = delete;
  ~CachedFile();

  Result<void> write_copy(const std::byte* bytes, std::size_t count, std::uint64_t offset) const;
  Result<void> read(std::byte* bytes, std::size_t count, std::uint64_t offset) const;
  /// From the copy to the file, by way of `piece`.
  Result<void> transfer(std::uint64_t offset, std::uint64_t count, std::span<std::byte> piece);
  /// Its name too, if it was made here.
  Result<void> sync() const;

 private:
  CachedFile(std::filesystem::path path, int file, int copy, bool made)
      : path_(std::move(path)), file_(file), copy_(copy), made_(made) {}
  Error cannot(const char* what, int code) const;

  const std::filesystem::path path_;
  const int file_, copy_;  // copy_ is -1 if the file is only read
  const bool made_;
  std::atomic<bool> lost_ = false;  // a transfer failed: the file has not what was written
};
using SharedCachedFile = std::shared_ptr<CachedFile>;

/// Thread safety: every method from any thread. mutex_ guards all of it, and is held for no I/O.
/// 1. thread_ transfers what was written in the order of add(), and one transfer at a time.
/// 2. A file is in unsynced_ from its first add() on until it is synced, or that has failed and is told.
class WriteBehind {
 public:
  explicit WriteBehind(std::size_t most);
  ~WriteBehind() { stop(); }
  /// Waits for room in the queue. False: stop() was called.
  bool add(const SharedCachedFile& file, std::uint64_t offset, std::uint64_t count);
  /// Until all that was added of this file is in it.
  void wait(const CachedFile& file);
  /// The file is synced once all of it is there, and closed.
  void close(SharedCachedFile file);
  /// All that was added is synced. False: something of it failed since the last call.
  bool flush();
  /// Ends once all is transferred and synced.
  void stop();

 private:
  struct Transfer {
    SharedCachedFile file;
    std::uint64_t offset = 0, count = 0;  // no bytes: it is synced and closed
  };
  void run();
  void sync(const SharedCachedFile& file);
  void failed();

  const std::size_t most_;
  std::vector<std::byte> piece_;  // of thread_
  std::mutex mutex_, end_mutex_;  // end_mutex_: one flush() or stop() at a time, and before mutex_
  std::condition_variable added_, done_;
  std::deque<Transfer> queue_;  // the first is under way
  std::set<SharedCachedFile> unsynced_;
  bool failed_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::veloc
