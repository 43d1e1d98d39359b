#pragma once
// Every file system call of the project. Real: PosixFiles. Double: testing/faulty_files.hpp.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ebbtide/error.hpp"
#include "platform/ring.hpp"
#include "platform/sys_result.hpp"

namespace ebb::platform {

/// Transfers with O_DIRECT keep memory, offset and length to multiples of this.
inline constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit = kBlock) { return (n + unit - 1) / unit * unit; }

/// What is known of the file system that a directory lies on.
struct FileSystem {
  std::string kind;               // "ext4", "xfs", "tmpfs", ... or "0x<magic>" for those not listed
  bool in_memory = false;         // tmpfs, ramfs: a "disk" there takes the memory it was meant to relieve
  std::uint64_t free_bytes = 0;   // for a user without privileges
  std::uint64_t total_bytes = 0;
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
  virtual SysResult close(int fd) noexcept = 0;
  virtual SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  virtual SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept = 0;
  /// Sets the file's length without taking space (sparse).
  virtual SysResult truncate(int fd, std::uint64_t bytes) noexcept = 0;
  /// Takes disk space for a range (and lengthens the file): EOPNOTSUPP where the file system cannot, never emulated.
  virtual SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  /// Gives the disk space of a range back; the length stays.
  virtual SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept = 0;
  virtual SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept = 0;
  /// A ring for asynchronous transfers. Error `unsupported` where there is none: not compiled in, ENOSYS, EPERM.
  virtual Result<std::unique_ptr<Ring>> open_ring(unsigned entries) = 0;
};

class PosixFiles final : public Files {
 public:
  SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept override;
  SysResult open_read(const std::filesystem::path& path) noexcept override;
  SysResult open_write(const std::filesystem::path& path) noexcept override;
  SysResult close(int fd) noexcept override;
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult truncate(int fd, std::uint64_t bytes) noexcept override;
  SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
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

}  // namespace ebb::platform
