// The calls that change sizes and times, lock, copy in the kernel and map. The file is written out first.
#include <cerrno>
#include <cstdarg>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "capture/preload/captured.hpp"
#include "capture/preload/hook.hpp"

using ebb::capture::active_files;
using ebb::capture::drain;
using ebb::capture::drain_and;
using ebb::capture::let_go;

namespace {

void drain_at(int directory, const char* path, int flags) {
  struct stat found{};
  if (!active_files() || !path) return;
  const int before = errno;
  if (::fstatat(directory, path, &found, flags) == 0) drain(active_files(), found);
  errno = before;
}

constexpr unsigned long kExtents = 0xC020660B;  // FS_IOC_FIEMAP

}  // namespace

EBB_HOOK(int, ftruncate, int fd, off_t size) {
  auto real = [&] { return static_cast<ssize_t>(EBB_REAL(ftruncate)(fd, size)); };
  return static_cast<int>(drain_and(fd, real));
}
EBB_ALIAS(ftruncate64, ftruncate)

EBB_HOOK(int, truncate, const char* path, off_t size) {
  auto real = [&] { return static_cast<ssize_t>(EBB_REAL(truncate)(path, size)); };
  struct stat found{};
  if (!active_files() || ::stat(path, &found) != 0 || !S_ISREG(found.st_mode)) return static_cast<int>(real());
  return static_cast<int>(drain_and(found, real));
}
EBB_ALIAS(truncate64, truncate)

EBB_HOOK(int, fallocate, int fd, int mode, off_t at, off_t bytes) {
  auto real = [&] { return static_cast<ssize_t>(EBB_REAL(fallocate)(fd, mode, at, bytes)); };
  return static_cast<int>(drain_and(fd, real));
}
EBB_ALIAS(fallocate64, fallocate)

EBB_HOOK(int, posix_fallocate, int fd, off_t at, off_t bytes) {
  auto real = [&] { return static_cast<ssize_t>(EBB_REAL(posix_fallocate)(fd, at, bytes)); };
  return static_cast<int>(drain_and(fd, real));
}
EBB_ALIAS(posix_fallocate64, posix_fallocate)

// Holes are where the kernel has no bytes yet.
EBB_HOOK(off_t, lseek, int fd, off_t to, int whence) {
  if (whence == SEEK_DATA || whence == SEEK_HOLE) drain(fd);
  return ::syscall(SYS_lseek, fd, to, whence);
}
EBB_ALIAS(lseek64, lseek)
EBB_ALIAS(__lseek, lseek)

EBB_HOOK(int, flock, int fd, int what) {
  drain(fd);
  return EBB_REAL(flock)(fd, what);
}

EBB_HOOK(int, lockf, int fd, int what, off_t bytes) {
  drain(fd);
  return EBB_REAL(lockf)(fd, what, bytes);
}
EBB_ALIAS(lockf64, lockf)

EBB_HOOK(int, fcntl, int fd, int what, ...) {
  va_list values;
  va_start(values, what);
  void* const value = va_arg(values, void*);
  va_end(values);
  switch (what) {
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
    case F_SETLEASE: drain(fd);
  }
  return EBB_REAL(fcntl)(fd, what, value);
}
EBB_ALIAS(fcntl64, fcntl)

EBB_HOOK(int, ioctl, int fd, unsigned long what, ...) {
  va_list values;
  va_start(values, what);
  void* const value = va_arg(values, void*);
  va_end(values);
  switch (what) {
    case FICLONE: drain(static_cast<int>(reinterpret_cast<intptr_t>(value))); break;
    case FICLONERANGE: drain(static_cast<int>(static_cast<const file_clone_range*>(value)->src_fd)); break;
    case FIDEDUPERANGE:
      for (int i = 0; i < static_cast<const file_dedupe_range*>(value)->dest_count; ++i) {
        drain(static_cast<int>(static_cast<const file_dedupe_range*>(value)->info[i].dest_fd));
      }
      break;
    case kExtents: break;
    default: return EBB_REAL(ioctl)(fd, what, value);
  }
  drain(fd);
  return EBB_REAL(ioctl)(fd, what, value);
}

EBB_HOOK(int, futimens, int fd, const timespec* times) {
  drain(fd);
  return EBB_REAL(futimens)(fd, times);
}
EBB_HOOK(int, utimensat, int directory, const char* path, const timespec* times, int flags) {
  if (path) drain_at(directory, path, flags & AT_SYMLINK_NOFOLLOW);
  if (!path) drain(directory);
  return EBB_REAL(utimensat)(directory, path, times, flags);
}
EBB_HOOK(int, utimes, const char* path, const timeval* times) {
  drain_at(AT_FDCWD, path, 0);
  return EBB_REAL(utimes)(path, times);
}
EBB_HOOK(int, futimes, int fd, const timeval* times) {
  drain(fd);
  return EBB_REAL(futimes)(fd, times);
}
EBB_HOOK(int, lutimes, const char* path, const timeval* times) {
  drain_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
  return EBB_REAL(lutimes)(path, times);
}
EBB_HOOK(int, futimesat, int directory, const char* path, const timeval* times) {
  drain_at(directory, path, 0);
  return EBB_REAL(futimesat)(directory, path, times);
}
EBB_HOOK(int, utime, const char* path, const utimbuf* times) {
  drain_at(AT_FDCWD, path, 0);
  return EBB_REAL(utime)(path, times);
}

EBB_HOOK(ssize_t, sendfile, int to, int from, off_t* at, size_t bytes) {
  drain(from);
  drain(to);
  return EBB_REAL(sendfile)(to, from, at, bytes);
}
EBB_ALIAS(sendfile64, sendfile)

EBB_HOOK(ssize_t, splice, int from, off64_t* from_at, int to, off64_t* to_at, size_t bytes, unsigned flags) {
  drain(from);
  drain(to);
  return EBB_REAL(splice)(from, from_at, to, to_at, bytes, flags);
}

EBB_HOOK(ssize_t, copy_file_range, int from, off64_t* from_at, int to, off64_t* to_at, size_t bytes, unsigned flags) {
  drain(from);
  drain(to);
  return EBB_REAL(copy_file_range)(from, from_at, to, to_at, bytes, flags);
}

// Pages of the file itself: later writes must be seen in them at once. An allocator may call this before anything else
// is ready, so it is a raw call.
EBB_HOOK(void*, mmap, void* where, size_t bytes, int protection, int flags, int fd, off_t at) {
  if (fd >= 0 && !(flags & MAP_ANONYMOUS)) let_go(fd);
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, protection, flags, fd, at));
}
EBB_ALIAS(mmap64, mmap)

// They read and write in threads of the C library.
struct aiocb_head {
  int fd;
};
EBB_HOOK(int, aio_write, aiocb_head* call) {
  let_go(call->fd);
  return EBB_REAL(aio_write)(call);
}
EBB_ALIAS(aio_write64, aio_write)
EBB_HOOK(int, aio_read, aiocb_head* call) {
  let_go(call->fd);
  return EBB_REAL(aio_read)(call);
}
EBB_ALIAS(aio_read64, aio_read)
