// Streams. The C library's write by calls that cannot be taken over, so a file below DIR gets a stream of ours, whose
// fileno() is the file's descriptor.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/preload/captured.hpp"
#include "capture/preload/hook.hpp"
#include "capture/preload/open.hpp"

extern "C" {
ssize_t hook_write(int, const void*, size_t) __asm__("write");
ssize_t hook_read(int, void*, size_t) __asm__("read");
}

namespace {

using ebb::capture::close_file;
using ebb::capture::is_below;
using ebb::capture::open_file;

// A stream of ours. freopen() must tell them from the C library's.
struct Stream {
  std::atomic<bool> used;
  std::atomic<FILE*> stream;
  int fd;
};
constexpr std::size_t kStreams = 512;  // more are the C library's, and their files are not captured
Stream streams[kStreams];

int fd_of(void* cookie) { return static_cast<Stream*>(cookie)->fd; }

bool is_ours(FILE* stream) {
  for (const Stream& one : streams) {
    if (one.used.load() && one.stream.load() == stream) return true;
  }
  return false;
}

ssize_t read_stream(void* cookie, char* to, size_t bytes) { return hook_read(fd_of(cookie), to, bytes); }
ssize_t write_stream(void* cookie, const char* from, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t now = hook_write(fd_of(cookie), from + done, bytes - done);
    if (now < 0) break;
    done += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(done);
}
int seek_stream(void* cookie, off64_t* at, int whence) {
  const long to = ::syscall(SYS_lseek, fd_of(cookie), *at, whence);
  if (to < 0) return -1;
  *at = to;
  return 0;
}
int close_stream(void* cookie) {
  auto* const mine = static_cast<Stream*>(cookie);
  const int fd = mine->fd;
  mine->stream = nullptr;
  mine->used = false;
  return close_file(fd);
}

// As fopen() reads its mode; -1: no such mode.
int flags_of(const char* mode) {
  int flags = 0;
  switch (*mode) {
    case 'r': flags = O_RDONLY; break;
    case 'w': flags = O_WRONLY | O_CREAT | O_TRUNC; break;
    case 'a': flags = O_WRONLY | O_CREAT | O_APPEND; break;
    default: return -1;
  }
  for (const char* at = mode + 1; *at && *at != ','; ++at) {
    if (*at == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*at == 'x') flags |= O_EXCL;
    if (*at == 'e') flags |= O_CLOEXEC;
  }
  return flags;
}

FILE* stream_over(int fd, const char* mode) {
  char plain[3] = {*mode, 0, 0};
  if (std::strpbrk(mode, "+")) plain[1] = '+';
  Stream* mine = nullptr;
  for (Stream& one : streams) {
    if (!one.used.exchange(true)) {
      mine = &one;
      break;
    }
  }
  if (!mine) return nullptr;
  mine->fd = fd;
  FILE* const stream = ::fopencookie(mine, plain, {read_stream, write_stream, seek_stream, close_stream});
  mine->stream = stream;
  if (!stream) mine->used = false;
  if (!stream) return nullptr;
  stream->_fileno = fd;
  if (*mode == 'a') ::syscall(SYS_lseek, fd, off_t{0}, SEEK_END);
  return stream;
}

bool wide(const char* mode) { return std::strstr(mode, "ccs=") != nullptr; }

}  // namespace

EBB_HOOK(FILE*, fdopen, int fd, const char* mode) {
  const int flags = flags_of(mode), has = static_cast<int>(::syscall(SYS_fcntl, fd, F_GETFL));
  const int access = has & O_ACCMODE;
  if (flags < 0 || has < 0 || !is_below(fd) || (access != O_RDWR && access != (flags & O_ACCMODE))) {
    return EBB_REAL(fdopen)(fd, mode);
  }
  if ((flags & O_APPEND) && !(has & O_APPEND)) ::syscall(SYS_fcntl, fd, F_SETFL, has | O_APPEND);
  FILE* const stream = wide(mode) ? nullptr : stream_over(fd, mode);
  if (stream) return stream;
  ebb::capture::let_go(fd);
  return EBB_REAL(fdopen)(fd, mode);
}

EBB_HOOK(FILE*, fopen, const char* path, const char* mode) {
  const int flags = flags_of(mode);
  if (flags < 0 || !ebb::capture::active()) return EBB_REAL(fopen)(path, mode);
  const int fd = open_file(path, flags, 0666);
  if (fd < 0) return nullptr;
  FILE* const stream = hook_fdopen(fd, mode);
  if (!stream) {
    const int error = errno;
    ::syscall(SYS_close, fd);
    errno = error;
  }
  return stream;
}
EBB_ALIAS(fopen64, fopen)

// The stream stays what it is: one of the C library's, whose file is no longer captured, or one of ours, whose
// descriptor gets another file.
EBB_HOOK(FILE*, freopen, const char* path, const char* mode, FILE* stream) {
  constexpr int kNoReads = 4, kNoWrites = 8;  // glibc's _IO_NO_READS and _IO_NO_WRITES
  const int flags = flags_of(mode);
  if (!is_ours(stream) || flags < 0 || !path) {
    if (path && flags >= 0 && ebb::capture::active()) {
      const int fd = open_file(path, flags & ~O_EXCL, 0666);  // writes it out, empties it
      if (fd >= 0) ebb::capture::let_go(fd);
      if (fd >= 0) ::syscall(SYS_close, fd);
    }
    return EBB_REAL(freopen)(path, mode, stream);
  }
  ::fflush(stream);
  const int fd = open_file(path, flags, 0666), old = ::fileno(stream);
  if (fd < 0 || ::syscall(SYS_dup3, fd, old, flags & O_CLOEXEC) < 0) {
    const int error = errno;
    if (fd >= 0) ::syscall(SYS_close, fd);
    ::fclose(stream);
    errno = error;
    return nullptr;
  }
  ::syscall(SYS_close, fd);
  ::fseek(stream, 0, flags & O_APPEND ? SEEK_END : SEEK_SET);
  ::clearerr(stream);
  stream->_flags &= ~(kNoReads | kNoWrites);
  if ((flags & O_ACCMODE) == O_RDONLY) stream->_flags |= kNoWrites;
  if ((flags & O_ACCMODE) == O_WRONLY) stream->_flags |= kNoReads;
  return stream;
}
EBB_ALIAS(freopen64, freopen)
