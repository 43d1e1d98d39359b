// The calls that open, close, sync and name files.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/preload/captured.hpp"
#include "capture/preload/hook.hpp"
#include "capture/preload/open.hpp"

using ebb::capture::active_files;
using ebb::capture::drain;
using ebb::capture::drain_all;
using ebb::capture::drain_and;
using ebb::capture::drain_name;

namespace {

// An open that may empty the file.
template <class Open>
int open_by(int directory, const char* path, int flags, Open open) {
  struct stat found{};
  auto real = [&] { return static_cast<ssize_t>(open()); };
  if (!(flags & O_TRUNC) || !path || !active_files()) return open();
  const int before = errno;
  const bool known = ::fstatat(directory, path, &found, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) == 0 &&
                     S_ISREG(found.st_mode) && !((flags & O_CREAT) && (flags & O_EXCL));
  errno = before;
  return known ? static_cast<int>(drain_and(found, real)) : open();
}

constexpr bool has_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

#define EBB_MODE(after)                                        \
  unsigned mode = 0;                                           \
  if (has_mode(flags)) {                                       \
    va_list values;                                            \
    va_start(values, after);                                   \
    mode = va_arg(values, unsigned); /* as mode_t is passed */ \
    va_end(values);                                            \
  }

}  // namespace

EBB_HOOK(int, openat, int directory, const char* path, int flags, ...) {
  EBB_MODE(flags)
  return open_by(directory, path, flags, [&] { return EBB_REAL(openat)(directory, path, flags, mode); });
}
EBB_ALIAS(openat64, openat)
EBB_HOOK(int, __openat_2, int directory, const char* path, int flags) { return hook_openat(directory, path, flags); }
EBB_ALIAS(__openat64_2, __openat_2)

EBB_HOOK(int, open, const char* path, int flags, ...) {
  EBB_MODE(flags)
  return open_by(AT_FDCWD, path, flags, [&] { return EBB_REAL(open)(path, flags, mode); });
}
EBB_ALIAS(open64, open)
EBB_ALIAS(__open, open)
EBB_ALIAS(__open64, open)
EBB_HOOK(int, __open_2, const char* path, int flags) { return hook_open(path, flags); }
EBB_ALIAS(__open64_2, __open_2)

EBB_HOOK(int, creat, const char* path, mode_t mode) { return hook_open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EBB_ALIAS(creat64, creat)

EBB_HOOK(int, close, int fd) {
  const int error = ebb::capture::note_close(fd);
  const int done = EBB_REAL(close)(fd);
  if (done != 0 || error == 0) return done;
  errno = error;
  return -1;
}
EBB_ALIAS(__close, close)

namespace ebb::capture {
int open_file(const char* path, int flags, unsigned mode) { return hook_open(path, flags, mode); }
int close_file(int fd) { return hook_close(fd); }
}  // namespace ebb::capture

EBB_HOOK(int, fsync, int fd) {
  bool defer = false;
  const int error = ebb::capture::take_error(fd, &defer);
  if (defer) return 0;
  const int done = EBB_REAL(fsync)(fd);
  if (error == 0) return done;
  errno = error;
  return -1;
}
EBB_HOOK(int, fdatasync, int fd) {
  bool defer = false;
  const int error = ebb::capture::take_error(fd, &defer);
  if (defer) return 0;
  const int done = EBB_REAL(fdatasync)(fd);
  if (error == 0) return done;
  errno = error;
  return -1;
}
EBB_HOOK(int, sync_file_range, int fd, off64_t at, off64_t bytes, unsigned flags) {
  drain(fd);
  return EBB_REAL(sync_file_range)(fd, at, bytes, flags);
}
EBB_HOOK(void, sync) {
  if (ebb::capture::defer_all()) return;
  drain_all();
  EBB_REAL(sync)();
}
EBB_HOOK(int, syncfs, int fd) {
  if (ebb::capture::defer_all()) return 0;
  drain_all();
  return EBB_REAL(syncfs)(fd);
}

EBB_HOOK(int, unlinkat, int directory, const char* path, int flags) {
  drain_name(directory, path);
  return EBB_REAL(unlinkat)(directory, path, flags);
}
EBB_HOOK(int, unlink, const char* path) {
  drain_name(AT_FDCWD, path);
  return EBB_REAL(unlink)(path);
}
EBB_HOOK(int, remove, const char* path) {
  drain_name(AT_FDCWD, path);
  return EBB_REAL(remove)(path);
}

namespace {

// Both names: what the new one meant is gone afterwards. The path is marked again, for a write in between looked it up.
template <class Rename>
int rename_by(int from, const char* from_path, int to, const char* to_path, Rename rename) {
  drain_name(from, from_path);
  drain_name(to, to_path);
  const int done = rename();
  if (done == 0) drain_name(to, to_path);
  return done;
}

}  // namespace

EBB_HOOK(int, renameat2, int from, const char* from_path, int to, const char* to_path, unsigned flags) {
  return rename_by(from, from_path, to, to_path,
                   [&] { return EBB_REAL(renameat2)(from, from_path, to, to_path, flags); });
}
EBB_HOOK(int, renameat, int from, const char* from_path, int to, const char* to_path) {
  return rename_by(from, from_path, to, to_path, [&] { return EBB_REAL(renameat)(from, from_path, to, to_path); });
}
EBB_HOOK(int, rename, const char* from, const char* to) {
  return rename_by(AT_FDCWD, from, AT_FDCWD, to, [&] { return EBB_REAL(rename)(from, to); });
}
EBB_HOOK(int, linkat, int from, const char* from_path, int to, const char* to_path, int flags) {
  if (flags & AT_SYMLINK_FOLLOW) drain_all();  // as /proc/self/fd/N is linked
  if (flags & AT_EMPTY_PATH) drain(from);
  drain_name(from, from_path);
  return EBB_REAL(linkat)(from, from_path, to, to_path, flags);
}
EBB_HOOK(int, link, const char* from, const char* to) {
  drain_name(AT_FDCWD, from);
  return EBB_REAL(link)(from, to);
}
