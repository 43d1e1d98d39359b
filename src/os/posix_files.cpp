#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "os/files.hpp"
#include "os/own_descriptors.hpp"
#include "os/uring_ring.hpp"

namespace ebb::os {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kOwnerAlone = 0700;  // of directories

template <class T>
SysResult result(T value) {
  return value < 0 ? SysResult::failed(errno) : SysResult::of(value);
}

// For file systems without O_TMPFILE (NFS, some FUSE): creates a named file and removes the name at once.
SysResult open_then_unlink(const std::filesystem::path& directory, int flags) {
  std::string name = directory / ".ebbtide-XXXXXX";
  const int fd = ::mkostemp(name.data(), flags | O_CLOEXEC);  // its mode is 0600
  if (fd < 0) return SysResult::failed(errno);
  if (::unlink(name.c_str()) == 0) return SysResult::of(fd);
  const int error = errno;
  ::close(fd);
  return SysResult::failed(error);
}

int how_to_open(Open how) {
  switch (how) {
    case Open::read: return O_RDONLY;
    case Open::write: return O_RDWR;
    case Open::create: return O_RDWR | O_CREAT | O_EXCL;
  }
  return O_RDONLY;
}

// Opened with O_NONBLOCK, since a pipe would wait for its other end; anything but a regular file is refused, and a
// regular one becomes an ordinary descriptor. Returns 0 or an errno.
int keep_if_file(int fd) {
  struct stat found;
  if (::fstat(fd, &found) != 0) return errno;
  if (S_ISDIR(found.st_mode)) return EISDIR;
  if (!S_ISREG(found.st_mode)) return ENXIO;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) return errno;
  return 0;
}

FileStatus status_of(const struct stat& found) {
  using Kind = FileStatus::Kind;
  FileStatus status;
  status.kind = S_ISREG(found.st_mode)   ? Kind::file
                : S_ISDIR(found.st_mode) ? Kind::directory
                : S_ISLNK(found.st_mode) ? Kind::link
                                         : Kind::other;
  status.bytes = static_cast<std::uint64_t>(found.st_size);
  status.allocated = static_cast<std::uint64_t>(found.st_blocks) * 512;
  status.mode = found.st_mode & 07777;
  status.owner = found.st_uid;
  status.links = found.st_nlink;
  status.device = found.st_dev;
  status.inode = found.st_ino;
  status.changed_ns = std::int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
  status.touched_ns = std::int64_t{found.st_ctim.tv_sec} * 1'000'000'000 + found.st_ctim.tv_nsec;
  return status;
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

SysResult PosixFiles::open(const std::filesystem::path& path, Open how, bool direct) noexcept {
  const int flags = how_to_open(how) | (direct ? O_DIRECT : 0);
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kOwnerOnly);
  if (fd < 0) return SysResult::failed(errno);
  const int error = keep_if_file(fd);
  if (error == 0) return SysResult::of(fd);
  ::close(fd);
  return SysResult::failed(error);
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
  // Not posix_fallocate: where the file system cannot allocate, it writes every block itself.
  return result(::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)));
}

SysResult PosixFiles::punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return result(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                            static_cast<off_t>(bytes)));
}

SysResult PosixFiles::sync(int fd) noexcept { return result(::fdatasync(fd)); }

SysResult PosixFiles::drop_cached(int fd) noexcept {
  const int error = ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return error ? SysResult::failed(error) : SysResult::of(0);
}

SysResult PosixFiles::next_data(int fd, std::uint64_t from) noexcept {
  const off_t at = ::lseek(fd, static_cast<off_t>(from), SEEK_DATA);
  return at < 0 ? SysResult::failed(errno) : SysResult::of(at);
}

SysResult PosixFiles::sync_directory(const std::filesystem::path& directory) noexcept {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SysResult::failed(errno);
  const SysResult synced = result(::fsync(fd));
  ::close(fd);
  return synced;
}

SysResult PosixFiles::make_directory(const std::filesystem::path& path) noexcept {
  return result(::mkdir(path.c_str(), kOwnerAlone));
}

SysResult PosixFiles::rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept {
  return result(::rename(from.c_str(), to.c_str()));
}

SysResult PosixFiles::remove(const std::filesystem::path& path) noexcept { return result(::remove(path.c_str())); }

SysResult PosixFiles::list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept try {
  out.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), [](DIR* d) { return ::closedir(d); });
  if (!stream) return SysResult::failed(errno);
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) return errno ? SysResult::failed(errno) : SysResult::of(0);
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) out.emplace_back(entry->d_name);
  }
} catch (const std::bad_alloc&) {
  return SysResult::failed(ENOMEM);
}

SysResult PosixFiles::status(const std::filesystem::path& path, FileStatus& out) noexcept {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return SysResult::failed(errno);
  out = status_of(found);
  return SysResult::of(0);
}

SysResult PosixFiles::status(int fd, FileStatus& out) noexcept {
  struct stat found;
  if (::fstat(fd, &found) != 0) return SysResult::failed(errno);
  out = status_of(found);
  return SysResult::of(0);
}

SysResult PosixFiles::read_link(const std::filesystem::path& path, std::filesystem::path& out) noexcept try {
  std::string target(PATH_MAX, '\0');
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  if (length < 0) return SysResult::failed(errno);
  target.resize(static_cast<std::size_t>(length));
  out = std::move(target);
  return SysResult::of(0);
} catch (const std::bad_alloc&) {
  return SysResult::failed(ENOMEM);
}

SysResult PosixFiles::lock(const std::filesystem::path& path, Open how) noexcept try {
  const int flags = how == Open::create ? O_RDWR | O_CREAT : how_to_open(how);
  int error = 0;
  const int fd = OwnDescriptors::of_process().open([&] {
    const int file = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kOwnerOnly);
    error = file < 0 ? errno : keep_if_file(file);
    if (error == 0 && ::flock(file, LOCK_EX | LOCK_NB) != 0) error = errno;
    if (error == 0) return file;
    if (file >= 0) ::close(file);
    return -1;
  });
  return fd < 0 ? SysResult::failed(error) : SysResult::of(fd);
} catch (const std::bad_alloc&) {
  return SysResult::failed(ENOMEM);
}

// Unlocks explicitly: a copy of the descriptor may exist, so closing is not enough.
SysResult PosixFiles::unlock(int fd) noexcept {
  const bool ours = OwnDescriptors::of_process().close(fd, [fd] { ::flock(fd, LOCK_UN); });
  return ours ? SysResult::of(0) : SysResult::failed(EBADF);
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

}  // namespace ebb::os
