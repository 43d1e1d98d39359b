// The calls that read and write.
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/preload/captured.hpp"
#include "capture/preload/hook.hpp"

using ebb::capture::read_captured;
using ebb::capture::write_captured;

EBB_HOOK(ssize_t, write, int fd, const void* from, size_t bytes) {
  auto real = [&] { return EBB_REAL(write)(fd, from, bytes); };
  const iovec piece{const_cast<void*>(from), bytes};
  return write_captured(fd, &piece, 1, -1, false, real);
}
EBB_ALIAS(__write, write)

EBB_HOOK(ssize_t, pwrite, int fd, const void* from, size_t bytes, off_t at) {
  auto real = [&] { return EBB_REAL(pwrite)(fd, from, bytes, at); };
  const iovec piece{const_cast<void*>(from), bytes};
  return at < 0 ? real() : write_captured(fd, &piece, 1, at, false, real);
}
EBB_ALIAS(pwrite64, pwrite)
EBB_ALIAS(__pwrite64, pwrite)

EBB_HOOK(ssize_t, writev, int fd, const iovec* from, int count) {
  auto real = [&] { return EBB_REAL(writev)(fd, from, count); };
  return write_captured(fd, from, count, -1, false, real);
}

EBB_HOOK(ssize_t, pwritev, int fd, const iovec* from, int count, off_t at) {
  auto real = [&] { return EBB_REAL(pwritev)(fd, from, count, at); };
  return at < 0 ? real() : write_captured(fd, from, count, at, false, real);
}
EBB_ALIAS(pwritev64, pwritev)

EBB_HOOK(ssize_t, pwritev2, int fd, const iovec* from, int count, off_t at, int flags) {
  auto real = [&] { return EBB_REAL(pwritev2)(fd, from, count, at, flags); };
  return at < -1 ? real() : write_captured(fd, from, count, at, flags != 0, real);
}
EBB_ALIAS(pwritev64v2, pwritev2)

EBB_HOOK(ssize_t, read, int fd, void* to, size_t bytes) {
  auto real = [&] { return EBB_REAL(read)(fd, to, bytes); };
  const iovec piece{to, bytes};
  return read_captured(fd, &piece, 1, -1, false, real);
}
EBB_ALIAS(__read, read)

EBB_HOOK(ssize_t, pread, int fd, void* to, size_t bytes, off_t at) {
  auto real = [&] { return EBB_REAL(pread)(fd, to, bytes, at); };
  const iovec piece{to, bytes};
  return at < 0 ? real() : read_captured(fd, &piece, 1, at, false, real);
}
EBB_ALIAS(pread64, pread)
EBB_ALIAS(__pread64, pread)

EBB_HOOK(ssize_t, readv, int fd, const iovec* to, int count) {
  auto real = [&] { return EBB_REAL(readv)(fd, to, count); };
  return read_captured(fd, to, count, -1, false, real);
}

EBB_HOOK(ssize_t, preadv, int fd, const iovec* to, int count, off_t at) {
  auto real = [&] { return EBB_REAL(preadv)(fd, to, count, at); };
  return at < 0 ? real() : read_captured(fd, to, count, at, false, real);
}
EBB_ALIAS(preadv64, preadv)

EBB_HOOK(ssize_t, preadv2, int fd, const iovec* to, int count, off_t at, int flags) {
  auto real = [&] { return EBB_REAL(preadv2)(fd, to, count, at, flags); };
  return at < -1 ? real() : read_captured(fd, to, count, at, flags != 0, real);
}
EBB_ALIAS(preadv64v2, preadv2)

// What _FORTIFY_SOURCE makes of them. A size that does not fit ends the program, which the real call does.
EBB_HOOK(ssize_t, __read_chk, int fd, void* to, size_t bytes, size_t room) {
  return bytes > room ? EBB_REAL(__read_chk)(fd, to, bytes, room) : hook_read(fd, to, bytes);
}
EBB_HOOK(ssize_t, __pread_chk, int fd, void* to, size_t bytes, off_t at, size_t room) {
  return bytes > room ? EBB_REAL(__pread_chk)(fd, to, bytes, at, room) : hook_pread(fd, to, bytes, at);
}
EBB_ALIAS(__pread64_chk, __pread_chk)

// The C library prints to a descriptor through a stream of its own.
EBB_HOOK(int, vdprintf, int fd, const char* format, va_list values) {
  if (!ebb::capture::is_below(fd)) return EBB_REAL(vdprintf)(fd, format, values);
  char* text = nullptr;
  const int length = ::vasprintf(&text, format, values);
  if (length < 0) return length;
  int done = 0;
  while (done < length) {
    const ssize_t now = hook_write(fd, text + done, static_cast<size_t>(length - done));
    if (now <= 0) break;
    done += static_cast<int>(now);
  }
  ::free(text);
  return done == length ? length : -1;
}
EBB_HOOK(int, __vdprintf_chk, int fd, int, const char* format, va_list values) {
  return hook_vdprintf(fd, format, values);
}
EBB_HOOK(int, dprintf, int fd, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int done = hook_vdprintf(fd, format, values);
  va_end(values);
  return done;
}
EBB_HOOK(int, __dprintf_chk, int fd, int, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int done = hook_vdprintf(fd, format, values);
  va_end(values);
  return done;
}
