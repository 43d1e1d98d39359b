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

namespace ebb::platform {

/// Transfers with O_DIRECT keep memory, offset and length to multiples of this.
inline constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit = kBlock) { return (n + unit - 1) / unit * unit; }

/// What is known of the file system that a directory lies on.
struct FileSystem {
  std::string kind;              // "ext4", "xfs", "tmpfs", ... or "0x<magic>" for those not listed
  bool in_memory = false;        // tmpfs, ramfs: a "disk" there takes the memory it was meant to relieve
  std::uint64_t free_bytes = 0;  // for a user without privileges
  std::uint64_t total_bytes = 0;
};

/// A file without its contents. Links are told of, never followed.
struct FileStatus {
  enum class Kind : std::uint8_t { file, directory, link, other } kind = Kind::file;
  std::uint64_t bytes = 0;              // the length
  std::uint64_t allocated = 0;          // on the disk
  std::uint32_t mode = 0;               // the permission bits
  std::uint32_t owner = 0;              // a user's number
  std::uint64_t links = 0;              // names; 0: it was removed, and is open still
  std::uint64_t device = 0, inode = 0;  // which file it is: no other has both while it has a name or is open
  std::int64_t changed_ns = 0;          // when its contents were changed last; 0: not known
  bool is(const FileStatus& other) const { return device == other.device && inode == other.inode; }
};

enum class Open : std::uint8_t {
  read,
  write,   // and read; it is there
  create,  // and read; EEXIST if it is there
};

/// Calls mirror the system's: a count or descriptor, or an errno; they never throw, never retry and never log.
/// Thread safety: every method may be called from any thread; `fd` must stay open meanwhile.
class Files {
 public:
  virtual ~Files() = default;
  /// Creates a file of mode 0600 without a name in `directory`: it is gone when closed, however the process ends.
  /// `direct`: with O_DIRECT; EINVAL where the file system has none.
  virtual SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept = 0;
  /// Opens a file to be read (also those of /proc and /sys, whose length is told by reading).
  virtual SysResult open_read(const std::filesystem::path& path) noexcept = 0;
  /// Creates a file of mode 0600, or empties the one that is there, to be written.
  virtual SysResult open_write(const std::filesystem::path& path) noexcept = 0;
  /// Opens a file of a store: close-on-exec, mode 0600 when created, and never through a link (ELOOP; EEXIST to
  /// create). What is no file is refused without waiting for its other end: EISDIR, ENXIO. `direct`: with O_DIRECT;
  /// EINVAL where the file system has none.
  virtual SysResult open(const std::filesystem::path& path, Open how, bool direct) noexcept = 0;
  virtual SysResult close(int fd) noexcept = 0;
  virtual SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  virtual SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  /// Sets the file's length without taking space (sparse).
  virtual SysResult truncate(int fd, std::uint64_t bytes) noexcept = 0;
  /// Takes disk space for a range (and lengthens the file): EOPNOTSUPP where the file system cannot, never emulated.
  virtual SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  /// Gives the disk space of a range back; the length stays.
  virtual SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  /// What was written to the file, and its length, is on stable storage (fdatasync).
  virtual SysResult sync(int fd) noexcept = 0;
  /// What memory holds of the file and need not be written is let go of, so that reads come from the disk: behind a
  /// sync that failed, memory shows what the disk may never have had. As far as the system can: ENOSYS, EOPNOTSUPP or
  /// EINVAL where it has no such call; a file system that has nothing in memory but its files says that it did.
  virtual SysResult drop_cached(int fd) noexcept = 0;
  /// The first place at or behind `from` where anything may have been written; ENXIO: there is none. What it passes is
  /// zeros.
  virtual SysResult next_data(int fd, std::uint64_t from) noexcept = 0;
  /// The names in a directory are on stable storage: what was created, renamed and removed in it.
  virtual SysResult sync_directory(const std::filesystem::path& directory) noexcept = 0;
  /// Of mode 0700. EEXIST if there is anything of that name.
  virtual SysResult make_directory(const std::filesystem::path& path) noexcept = 0;
  /// Takes the place of what is there, at once.
  virtual SysResult rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept = 0;
  /// A file's name, a link, or an empty directory.
  virtual SysResult remove(const std::filesystem::path& path) noexcept = 0;
  /// The names in a directory, without "." and "..", in no order.
  virtual SysResult list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept = 0;
  virtual SysResult status(const std::filesystem::path& path, FileStatus& out) noexcept = 0;
  virtual SysResult status(int fd, FileStatus& out) noexcept = 0;
  /// Opens a file as open() does and takes it for this process alone, until unlock() or the end of the process, however
  /// that comes about; a child of fork() has no part in it. Open::create: made if it is not there. EWOULDBLOCK: another
  /// has it. Never waits.
  virtual SysResult lock(const std::filesystem::path& path, Open how) noexcept = 0;
  /// Gives a file back that lock() took, and closes it. EBADF, and nothing is done: in another process than that one.
  virtual SysResult unlock(int fd) noexcept = 0;
  virtual SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept = 0;
  /// A ring for asynchronous transfers. Error `unsupported` where there is none: not compiled in, ENOSYS, EPERM.
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
  SysResult lock(const std::filesystem::path& path, Open how) noexcept override;
  SysResult unlock(int fd) noexcept override;
  SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept override;
  Result<std::unique_ptr<Ring>> open_ring(unsigned entries) override;
};

/// An open file. Move-only; moved-from is closed (fd -1). Closes on destruction. `files` must outlive it.
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
    if (fd_ >= 0) static_cast<void>(files_->close(fd_));  // nothing is owed to a file without a name
  }
  int fd() const noexcept { return fd_; }
  /// Opened with O_DIRECT.
  bool direct() const noexcept { return direct_; }
  /// What a person calls it, for messages.
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

/// A file that is locked, as Files::lock() does. Move-only; moved-from holds nothing. Unlocks on destruction, in the
/// process that locked it. `files` must outlive it.
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
  // In a child the number may stand for something else by now.
  ~FileLock() {
    if (fd_ >= 0 && process_ == ::getpid()) static_cast<void>(files_->unlock(fd_));
  }
  int fd() const noexcept { return fd_; }

 private:
  Files* files_ = nullptr;
  int fd_ = -1;
  pid_t process_ = 0;
};

}  // namespace ebb::platform
