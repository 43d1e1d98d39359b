#pragma once
// Every file system call of the project. Real: PosixFiles. Double: tests/doubles/faulty_files.hpp.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/ring.hpp"
#include "os/sys_result.hpp"

namespace ebb::os {

/// With O_DIRECT, memory, offset and length are multiples of this.
inline constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit = kBlock) { return (n + unit - 1) / unit * unit; }

/// The file system that a directory is on.
struct FileSystem {
  std::string kind;              // "ext4", "xfs", "tmpfs", ...; "0x<magic>" for others
  bool in_memory = false;        // tmpfs, ramfs: files there use the memory that the disk tier is meant to relieve
  std::uint64_t free_bytes = 0;  // for an unprivileged user
  std::uint64_t total_bytes = 0;
};

/// The status of a file. Links are reported, never followed.
struct FileStatus {
  enum class Kind : std::uint8_t { file, directory, link, other } kind = Kind::file;
  std::uint64_t bytes = 0;              // the length
  std::uint64_t allocated = 0;          // on the disk
  std::uint32_t mode = 0;               // the permission bits
  std::uint32_t owner = 0;              // a user id
  std::uint64_t links = 0;              // hard links; 0: removed, and still open
  std::uint64_t device = 0, inode = 0;  // identify the file while it has a name or is open
  std::int64_t changed_ns = 0;          // last change of its contents; 0: unknown
  std::int64_t touched_ns = 0;          // last change of anything of it, which no program can set; 0: unknown
  bool is(const FileStatus& other) const { return device == other.device && inode == other.inode; }
};

enum class Open : std::uint8_t {
  read,
  write,   // and read; ENOENT unless it exists
  create,  // and read; EEXIST if it exists
};

/// Each call mirrors the system's: it returns a count or descriptor, or an errno; it never throws, retries or logs.
/// Thread safety: every method may be called from any thread; `fd` must stay open during the call.
class Files {
 public:
  virtual ~Files() = default;
  /// Creates a file of mode 0600 without a name in `directory`; it is deleted when closed, however the process ends.
  /// `direct`: with O_DIRECT; EINVAL where the file system does not support it.
  virtual SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept = 0;
  /// Opens a file for reading, also in /proc and /sys, where only reading shows the length.
  virtual SysResult open_read(const std::filesystem::path& path) noexcept = 0;
  /// Opens a file for writing: creates it with mode 0600, or truncates it.
  virtual SysResult open_write(const std::filesystem::path& path) noexcept = 0;
  /// Opens a file of a store: close-on-exec, mode 0600 when created, never through a link (ELOOP; EEXIST when
  /// creating). Anything but a regular file is refused without blocking: EISDIR, ENXIO. `direct`: with O_DIRECT; EINVAL
  /// where the file system does not support it.
  virtual SysResult open(const std::filesystem::path& path, Open how, bool direct) noexcept = 0;
  virtual SysResult close(int fd) noexcept = 0;
  virtual SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  virtual SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  /// Sets the file's length without allocating disk space (sparse).
  virtual SysResult truncate(int fd, std::uint64_t bytes) noexcept = 0;
  /// Allocates disk space for a range, lengthening the file if necessary. EOPNOTSUPP where the file system cannot; it
  /// is never emulated.
  virtual SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  /// Frees the disk space of a range; the length stays.
  virtual SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  /// Puts the file's data and length on stable storage (fdatasync).
  virtual SysResult sync(int fd) noexcept = 0;
  /// Drops clean cached pages of the file, so that reads come from the disk: after a failed sync the page cache may
  /// show data that never reached it. ENOSYS, EOPNOTSUPP or EINVAL where the system cannot; a file system that lives in
  /// memory reports success.
  virtual SysResult drop_cached(int fd) noexcept = 0;
  /// The first offset at or after `from` that may hold data; ENXIO: none. What it skips reads as zeros.
  virtual SysResult next_data(int fd, std::uint64_t from) noexcept = 0;
  /// Puts a directory's entries on stable storage: what was created, renamed and removed in it.
  virtual SysResult sync_directory(const std::filesystem::path& directory) noexcept = 0;
  /// With mode 0700. EEXIST if the name is taken.
  virtual SysResult make_directory(const std::filesystem::path& path) noexcept = 0;
  /// Replaces `to` atomically.
  virtual SysResult rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept = 0;
  /// Removes a file's name, a link, or an empty directory.
  virtual SysResult remove(const std::filesystem::path& path) noexcept = 0;
  /// The names in a directory, unordered, without "." and "..".
  virtual SysResult list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept = 0;
  virtual SysResult status(const std::filesystem::path& path, FileStatus& out) noexcept = 0;
  virtual SysResult status(int fd, FileStatus& out) noexcept = 0;
  /// Where a link leads, as it says. EINVAL: it is no link.
  virtual SysResult read_link(const std::filesystem::path& path, std::filesystem::path& out) noexcept = 0;
  /// Opens a file as open() does and locks it for this process until unlock() or the process's end, however it ends; a
  /// forked child does not share the lock. Open::create: creates it if necessary. EWOULDBLOCK: another process holds
  /// the lock. Never blocks.
  virtual SysResult lock(const std::filesystem::path& path, Open how) noexcept = 0;
  /// Unlocks and closes a file that lock() locked. EBADF, with no effect, in any other process.
  virtual SysResult unlock(int fd) noexcept = 0;
  virtual SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept = 0;
  /// A ring for asynchronous transfers. Error `unsupported`: not compiled in, ENOSYS, EPERM.
  virtual Result<std::unique_ptr<Ring>> open_ring(unsigned entries) = 0;
};

class PosixFiles final : public Files {
 public:
  SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept override;
  SysResult open_read(const std::filesystem::path& path) noexcept override;
  SysResult open_write(const std::filesystem::path& path) noexcept override;
  SysResult open(const std::filesystem::path& path, Open how, bool direct) noexcept override;
  SysResult close(int fd) noexcept override;
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult truncate(int fd, std::uint64_t bytes) noexcept override;
  SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  SysResult sync(int fd) noexcept override;
  SysResult drop_cached(int fd) noexcept override;
  SysResult next_data(int fd, std::uint64_t from) noexcept override;
  SysResult sync_directory(const std::filesystem::path& directory) noexcept override;
  SysResult make_directory(const std::filesystem::path& path) noexcept override;
  SysResult rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept override;
  SysResult remove(const std::filesystem::path& path) noexcept override;
  SysResult list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept override;
  SysResult status(const std::filesystem::path& path, FileStatus& out) noexcept override;
  SysResult status(int fd, FileStatus& out) noexcept override;
  SysResult read_link(const std::filesystem::path& path, std::filesystem::path& out) noexcept override;
  SysResult lock(const std::filesystem::path& path, Open how) noexcept override;
  SysResult unlock(int fd) noexcept override;
  SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept override;
  Result<std::unique_ptr<Ring>> open_ring(unsigned entries) override;
};

/// An open file. Move-only; moved-from is closed (fd -1). The destructor closes it. `files` must outlive it.
class File {
 public:
  File() = default;
  File(Files& files, int fd, std::string name, bool direct)
      : files_(&files), fd_(fd), direct_(direct), name_(std::move(name)) {}
  File(File&& other) noexcept { swap(other); }
  File& operator=(File&& other) noexcept {
    File taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) static_cast<void>(files_->close(fd_));  // an unnamed file has no data to lose
  }
  int fd() const noexcept { return fd_; }
  /// Opened with O_DIRECT.
  bool direct() const noexcept { return direct_; }
  /// The name used in messages.
  const std::string& name() const noexcept { return name_; }

 private:
  void swap(File& other) noexcept {
    std::swap(files_, other.files_);
    std::swap(fd_, other.fd_);
    std::swap(direct_, other.direct_);
    std::swap(name_, other.name_);
  }
  Files* files_ = nullptr;
  int fd_ = -1;
  bool direct_ = false;
  std::string name_;
};

/// A locked file (Files::lock()). Move-only; moved-from holds nothing. The destructor unlocks it, in the process that
/// locked it. `files` must outlive it.
class FileLock {
 public:
  FileLock() = default;
  FileLock(Files& files, int fd) : files_(&files), fd_(fd), process_(::getpid()) {}
  FileLock(FileLock&& other) noexcept
      : files_(other.files_), fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}
  FileLock& operator=(FileLock&& other) noexcept {
    FileLock taken(std::move(other));
    std::swap(files_, taken.files_);
    std::swap(fd_, taken.fd_);
    std::swap(process_, taken.process_);
    return *this;
  }
  // In a forked child the descriptor may be another file's by now.
  ~FileLock() {
    if (fd_ >= 0 && process_ == ::getpid()) static_cast<void>(files_->unlock(fd_));
  }
  int fd() const noexcept { return fd_; }

 private:
  Files* files_ = nullptr;
  int fd_ = -1;
  pid_t process_ = 0;
};

}  // namespace ebb::os
