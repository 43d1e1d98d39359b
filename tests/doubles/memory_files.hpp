#pragma once
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "os/files.hpp"
#include "tests/doubles/file_tree.hpp"

namespace ebb::doubles {

/// A file system in memory that records every change in a journal, from which PowerLoss makes states. For stores of a
/// few MiB: all written bytes stay in the journal. Paths start at its root, which is empty at first; there are no
/// links, and every file and directory belongs to the current user. Descriptors are never reused, and differ from the
/// system's.
///
/// A sync that FaultyFiles refuses never reaches it; one that fail_sync() refuses fails like the system's.
/// There is no ring (`unsupported`).
///
/// Thread safety: every method may be called from any thread. Calls happen one after another, in the journal's order.
class MemoryFiles final : public os::Files {
 public:
  static constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 40;

  /// Has room for `capacity` bytes of files, in pages of 4096; ENOSPC beyond.
  explicit MemoryFiles(std::uint64_t capacity = kUnlimited) : capacity_(capacity) {}
  /// Starts as `tree`, with an empty journal.
  explicit MemoryFiles(FileTree tree, std::uint64_t capacity = kUnlimited);
  /// Starts at the end of a journal, and continues it.
  explicit MemoryFiles(Journal journal, std::uint64_t capacity = kUnlimited);

  /// Adds a note of the test to the journal ("reported durable: 7").
  void note(std::string text);
  Journal journal() const;
  /// The number of entries in the journal.
  std::size_t changes() const;
  /// Sets the capacity.
  void set_capacity(std::uint64_t bytes);
  /// The n-th sync of a file from now on (1 is the next) fails with EIO: the bytes are in memory only, and no later
  /// sync writes them.
  void fail_sync(std::uint64_t nth);
  /// Descriptors opened and not closed.
  std::size_t open_files() const;

  os::SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept override;
  os::SysResult open_read(const std::filesystem::path& path) noexcept override;
  os::SysResult open_write(const std::filesystem::path& path) noexcept override;
  os::SysResult open(const std::filesystem::path& path, os::Open how, bool direct) noexcept override;
  os::SysResult close(int fd) noexcept override;
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  os::SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  os::SysResult truncate(int fd, std::uint64_t bytes) noexcept override;
  os::SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  os::SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  os::SysResult sync(int fd) noexcept override;
  os::SysResult drop_cached(int fd) noexcept override;
  os::SysResult next_data(int fd, std::uint64_t from) noexcept override;
  os::SysResult sync_directory(const std::filesystem::path& directory) noexcept override;
  os::SysResult make_directory(const std::filesystem::path& path) noexcept override;
  os::SysResult rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept override;
  os::SysResult remove(const std::filesystem::path& path) noexcept override;
  os::SysResult list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept override;
  os::SysResult status(const std::filesystem::path& path, os::FileStatus& out) noexcept override;
  os::SysResult status(int fd, os::FileStatus& out) noexcept override;
  os::SysResult read_link(const std::filesystem::path&, std::filesystem::path&) noexcept override {
    return os::SysResult::failed(EINVAL);  // there are no links
  }
  os::SysResult lock(const std::filesystem::path& path, os::Open how) noexcept override;
  os::SysResult unlock(int fd) noexcept override;
  os::SysResult describe(const std::filesystem::path& directory, os::FileSystem& out) noexcept override;
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override;

 private:
  struct OpenFile {
    Inode inode = 0;
    bool readable = false, writable = false, direct = false;
    std::string path{};
  };
  void change_locked(Change change);
  void drop_if_unused_locked(Inode inode);
  os::SysResult open_locked(Inode inode, bool readable, bool writable, bool direct, const std::filesystem::path& path);
  Inode create_locked(const FileTree::Place& place, const std::filesystem::path& path);
  OpenFile* writable_locked(int fd);
  std::uint64_t room_locked() const;
  os::SysResult change_file(int fd, Change change);

  mutable std::mutex mutex_;
  std::uint64_t capacity_;
  FileTree before_, now_;
  std::vector<Change> changes_;
  std::map<int, OpenFile> open_;
  std::map<Inode, int> locks_;       // by descriptor
  std::uint64_t until_failure_ = 0;  // syncs; 0: none fails
  int next_fd_ = 1'000'000;
  Inode next_inode_ = kRoot + 1;
};

}  // namespace ebb::doubles
