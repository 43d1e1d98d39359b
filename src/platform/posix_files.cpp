#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "platform/files.hpp"
#include "platform/uring_ring.hpp"

namespace ebb::platform {
namespace {

constexpr mode_t kOwnerOnly = 0600;

template <class T>
SysResult result(T value) {
  return value < 0 ? SysResult::failed(errno) : SysResult::of(value);
}

// For file systems without O_TMPFILE (NFS and some FUSE ones): made with a name that is taken away at once.
SysResult open_then_unlink(const std::filesystem::path& directory, int flags) {
  std::string name = directory / ".ebbtide-XXXXXX";
  const int fd = ::mkostemp(name.data(), flags | O_CLOEXEC);  // its mode is 0600
  if (fd < 0) return SysResult::failed(errno);
  if (::unlink(name.c_str()) == 0) return SysResult::of(fd);
  const int error = errno;
  ::close(fd);
  return SysResult::failed(error);
}

struct Magic {
  std::uint64_t number;
  const char* name;
  bool in_memory;
};
constexpr std::array<Magic, 14> kMagics{{{0xEF53, "ext4", false},
                                         {0x58465342, "xfs", false},
                                         {0x9123683E, "btrfs", false},
                                         {0x2FC12FC1, "zfs", false},
                                         {0xF2F52010, "f2fs", false},
                                         {0x01021994, "tmpfs", true},
                                         {0x858458F6, "ramfs", true},
                                         {0x958458F6, "hugetlbfs", true},
                                         {0x794C7630, "overlay", false},
                                         {0x6969, "nfs", false},
                                         {0x0BD00BD0, "lustre", false},
                                         {0x47504653, "gpfs", false},
                                         {0x19830326, "beegfs", false},
                                         {0x65735546, "fuse", false}}};

}  // namespace

SysResult PosixFiles::open_unlinked(const std::filesystem::path& directory, bool direct) noexcept try {
  const int flags = direct ? O_DIRECT : 0;
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, kOwnerOnly);
  if (fd >= 0) return SysResult::of(fd);
  if (errno == EOPNOTSUPP || errno == EISDIR) return open_then_unlink(directory, flags);
  return SysResult::failed(errno);
} catch (const std::bad_alloc&) {
  return SysResult::failed(ENOMEM);
}

SysResult PosixFiles::open_read(const std::filesystem::path& path) noexcept {
  return result(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

SysResult PosixFiles::open_write(const std::filesystem::path& path) noexcept {
  return result(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly));
}

SysResult PosixFiles::close(int fd) noexcept { return result(::close(fd)); }

SysResult PosixFiles::read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  return result(::pread(fd, memory, bytes, static_cast<off_t>(offset)));
}

SysResult PosixFiles::write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  return result(::pwrite(fd, memory, bytes, static_cast<off_t>(offset)));
}

SysResult PosixFiles::truncate(int fd, std::uint64_t bytes) noexcept {
  return result(::ftruncate(fd, static_cast<off_t>(bytes)));
}

SysResult PosixFiles::preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  // Not posix_fallocate: where the file system cannot, that one writes every block itself.
  return result(::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

SysResult PosixFiles::punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return result(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                            static_cast<off_t>(bytes)));
}

SysResult PosixFiles::describe(const std::filesystem::path& directory, FileSystem& out) noexcept try {
  struct statfs found;
  if (::statfs(directory.c_str(), &found) != 0) return SysResult::failed(errno);
  const auto number = static_cast<std::uint32_t>(found.f_type);
  char unlisted[16];
  std::snprintf(unlisted, sizeof unlisted, "0x%x", number);
  out = {unlisted, false, found.f_bavail * static_cast<std::uint64_t>(found.f_bsize),
         found.f_blocks * static_cast<std::uint64_t>(found.f_bsize)};
  for (const Magic& magic : kMagics) {
    if (magic.number != number) continue;
    out.kind = magic.name;
    out.in_memory = magic.in_memory;
  }
  return SysResult::of(0);
} catch (const std::bad_alloc&) {
  return SysResult::failed(ENOMEM);
}

Result<std::unique_ptr<Ring>> PosixFiles::open_ring(unsigned entries) { return open_uring(entries); }

}  // namespace ebb::platform
