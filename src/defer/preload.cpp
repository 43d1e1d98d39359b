// The library that a program with deferred syncs loads. Calls that wait for the disk return at once for files below the
// run's directory and on its file system; all else goes on to the real call. The library allocates nothing, keeps no
// descriptor, and leaves errno as it was.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "defer/run_memory.hpp"

namespace {

using namespace ebb::defer;

RunMemory* memory = nullptr;  // null: everything goes to the real calls

#define EBB_CALLS(each)                                                                                \
  each(open) each(open64) each(openat) each(openat64) each(__open_2) each(__open64_2) each(__openat_2) \
      each(__openat64_2) each(fsync) each(fdatasync) each(sync) each(syncfs) each(msync) each(sync_file_range)
#define EBB_POINTER(name) void* next_##name;
EBB_CALLS(EBB_POINTER)

[[gnu::constructor]] void begin() {
#define EBB_FIND(name) next_##name = ::dlsym(RTLD_NEXT, #name);
  EBB_CALLS(EBB_FIND)
  const int before = errno;
  const char* const path = std::getenv(kVariable);
  const int fd = path ? static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC)) : -1;
  struct stat found;
  if (fd >= 0 && ::fstat(fd, &found) == 0 && found.st_size == sizeof(RunMemory)) {
    void* const at = ::mmap(nullptr, sizeof(RunMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED && static_cast<RunMemory*>(at)->magic == kMagic) memory = static_cast<RunMemory*>(at);
  }
  if (fd >= 0) ::close(fd);
  errno = before;
}

bool below_directory(const char* path, std::size_t length) {
  return length >= memory->length && std::memcmp(path, memory->directory, memory->length) == 0 &&
         (length == memory->length || path[memory->length] == '/' || memory->length == 1);
}

/// Whether a file or directory is below the run's directory; `inode` is its own.
bool is_below(int fd, std::uint64_t& inode) {
  struct stat found;
  if (!memory || !writer_lives(*memory) || ::fstat(fd, &found) != 0) return false;
  if (found.st_dev != memory->device || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return false;
  inode = found.st_ino;
  char link[32], path[kLongestPath + 1];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, memory->length + 1);
  return length > 0 && below_directory(path, static_cast<std::size_t>(length));
}

/// Whether the pages from `at` to `end` map files below the directory; `inode`: of the last.
bool is_mapped_below(std::uintptr_t at, const std::uintptr_t end, std::uint64_t& inode) {
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  char chunk[1024], line[kLongestPath + 128];
  std::size_t used = 0;
  for (ssize_t count, i = 0; fd > STDERR_FILENO && at < end && (count = ::read(fd, chunk, sizeof chunk)) > 0; i = 0) {
    for (; at < end && i < count; ++i) {
      if (chunk[i] != '\n' && used + 1 < sizeof line) line[used++] = chunk[i];
      if (chunk[i] != '\n') continue;
      line[std::exchange(used, 0)] = 0;
      unsigned long first, last, number;
      unsigned int major, minor;
      int path = 0;
      if (std::sscanf(line, "%lx-%lx %*s %*x %x:%x %lu %n", &first, &last, &major, &minor, &number, &path) < 5)
        continue;
      if (first > at || at >= last) continue;
      inode = number;
      if (makedev(major, minor) != memory->device || !below_directory(line + path, std::strlen(line + path))) break;
      at = last;
    }
    if (i < count) break;
  }
  if (fd >= 0) ::close(fd);
  return at >= end;
}

/// Tells the writer. False: the caller must sync by itself, because the writer has died, ended or got stuck.
bool tell(std::uint64_t inode) {
  const std::uint32_t at = memory->calls.fetch_add(1);
  if (inode) memory->told[at % kTold] = inode;
  if (memory->asleep.exchange(0)) wake_all(memory->calls);
  std::uint32_t beat = memory->beat, still = 0;
  for (; memory->full && writer_lives(*memory) && still < kStuck; ++still) {
    wait_on(memory->full, 1, 100);
    if (std::exchange(beat, memory->beat) != beat) still = 0;
  }
  return writer_lives(*memory) && still < kStuck;
}

bool deferred(int fd) {
  const int before = errno;
  std::uint64_t inode = 0;
  const bool done = is_below(fd, inode) && tell(inode);
  errno = before;
  return done;
}

/// The flags without O_SYNC and O_DSYNC, if the file is below the directory, or will be. What is opened to find that
/// out is never the file itself: closing that would drop the locks that this process has on it.
int without_sync(int at, const char* path, int flags) {
  if (!(flags & O_DSYNC) || !memory) return flags;
  const int before = errno;
  std::uint64_t inode = 0;
  int probe = static_cast<int>(::syscall(SYS_openat, at, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW)));
  char parent[kLongestPath] = ".";
  if (probe < 0 && errno == ENOENT && (flags & O_CREAT) && ::readlinkat(at, path, parent, 1) < 0) {
    const char* const slash = std::strrchr(path, '/');
    if (slash) std::snprintf(parent, sizeof parent, "%.*s", static_cast<int>(slash - path) + 1, path);
    probe = static_cast<int>(::syscall(SYS_openat, at, parent, O_PATH | O_CLOEXEC));
  }
  if (probe > STDERR_FILENO && is_below(probe, inode) && tell(inode)) flags &= ~O_SYNC;
  if (probe >= 0) ::close(probe);
  errno = before;
  return flags;
}

}  // namespace

#define EBB_CALL extern "C" [[gnu::visibility("default")]]
#define EBB_NEXT(name) reinterpret_cast<decltype(&name)>(next_##name ? next_##name : (begin(), next_##name))
#define EBB_MODE                                        \
  if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
    va_list more;                                       \
    va_start(more, flags);                              \
    mode = va_arg(more, mode_t);                        \
    va_end(more);                                       \
  }
#define EBB_OPEN(name, parameters, directory, given, find_mode) \
  EBB_CALL int name parameters {                                \
    [[maybe_unused]] mode_t mode = 0;                           \
    find_mode;                                                  \
    flags = without_sync(directory, path, flags);               \
    return EBB_NEXT(name) given;                                \
  }
EBB_OPEN(open, (const char* path, int flags, ...), AT_FDCWD, (path, flags, mode), EBB_MODE)
EBB_OPEN(open64, (const char* path, int flags, ...), AT_FDCWD, (path, flags, mode), EBB_MODE)
EBB_OPEN(openat, (int at, const char* path, int flags, ...), at, (at, path, flags, mode), EBB_MODE)
EBB_OPEN(openat64, (int at, const char* path, int flags, ...), at, (at, path, flags, mode), EBB_MODE)
EBB_OPEN(__open_2, (const char* path, int flags), AT_FDCWD, (path, flags), )
EBB_OPEN(__open64_2, (const char* path, int flags), AT_FDCWD, (path, flags), )
EBB_OPEN(__openat_2, (int at, const char* path, int flags), at, (at, path, flags), )
EBB_OPEN(__openat64_2, (int at, const char* path, int flags), at, (at, path, flags), )

EBB_CALL int fsync(int fd) { return deferred(fd) ? 0 : EBB_NEXT(fsync)(fd); }
EBB_CALL int fdatasync(int fd) { return deferred(fd) ? 0 : EBB_NEXT(fdatasync)(fd); }
EBB_CALL int syncfs(int fd) noexcept { return deferred(fd) ? 0 : EBB_NEXT(syncfs)(fd); }
EBB_CALL int sync_file_range(int fd, off64_t offset, off64_t count, unsigned int flags) {
  const bool valid = offset >= 0 && count >= 0 && offset <= INT64_MAX - count && flags <= 7;
  return valid && deferred(fd) ? 0 : EBB_NEXT(sync_file_range)(fd, offset, count, flags);
}
EBB_CALL void sync() noexcept {
  if (memory) memory->everything = 1;
  if (!memory || !tell(0)) EBB_NEXT(sync)();
}
EBB_CALL int msync(void* address, std::size_t length, int flags) {
  const int before = errno;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  std::uint64_t inode = 0;
  const bool ours =
      (flags & MS_SYNC) && memory && writer_lives(*memory) && is_mapped_below(first, first + length, inode);
  if (ours && tell(inode)) flags ^= MS_SYNC | MS_ASYNC;  // which checks the range, and no more
  errno = before;
  return EBB_NEXT(msync)(address, length, flags);
}
