// calls_program NAME DIRECTORY: makes one call, or a few of one kind, on files there that hold bytes which were just
// written, and prints what it returns and what the file "a" then contains. Run captured, it must print what it prints
// otherwise. calls_program --list prints the names.
#include <aio.h>
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <iostream>
#include <linux/fs.h>
#include <map>
#include <spawn.h>
#include <string>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

extern char** environ;
extern "C" {
int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off_t, size_t);
int __dprintf_chk(int, int, const char*, ...);
int __vdprintf_chk(int, int, const char*, va_list);
int __xstat(int, const char*, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
ssize_t real_write(int, const void*, size_t) __asm__("__write");
ssize_t real_pwrite(int, const void*, size_t, off_t) __asm__("__pwrite64");
ssize_t real_read(int, void*, size_t) __asm__("__read");
ssize_t real_pread(int, void*, size_t, off_t) __asm__("__pread64");
int real_open(const char*, int, ...) __asm__("__open");
int real_open64(const char*, int, ...) __asm__("__open64");
int real_close(int) __asm__("__close");
off_t real_lseek(int, off_t, int) __asm__("__lseek");
}

namespace {

const std::string kBytes = "0123456789abcdefghijklmnopqrstuvwxyz";
char room[4096];

void say(const char* what, long result) {
  std::printf("%s %ld%s\n", what, result, result < 0 ? (" " + std::to_string(errno)).c_str() : "");
}
void show(const char* path) {
  const int fd = ::open(path, O_RDONLY);
  if (fd < 0) return say(path, fd);
  struct stat found{};
  ::fstat(fd, &found);
  std::string all(static_cast<std::size_t>(found.st_size), ' ');
  const ssize_t got = ::read(fd, all.data(), all.size());
  ::close(fd);
  for (char& c : all) c = c == 0 ? '.' : c;
  std::printf("%s: %zd of %zu: %s\n", path, got, all.size(), all.substr(0, 200).c_str());
}
/// An open file with bytes that are in the pool.
int dirty(const char* path = "a", int flags = O_RDWR | O_CREAT) {
  const int fd = ::open(path, flags, 0644);
  if (::write(fd, kBytes.data(), kBytes.size()) != static_cast<ssize_t>(kBytes.size())) std::printf("write failed\n");
  return fd;
}
const char* dirty_path() {
  dirty();
  return "a";
}
int dirty_at(off_t at) {
  const int fd = dirty();
  ::lseek(fd, at, SEEK_SET);
  return fd;
}
iovec two[2] = {{const_cast<char*>("AB"), 2}, {const_cast<char*>("CDE"), 3}};
iovec two_in[2] = {{room, 3}, {room + 3, 4}};
void said(long got) {
  say("got", got);
  if (got > 0) std::printf("%.*s\n", static_cast<int>(got), room);
}

/// Sends an asynchronous call and waits for it.
template <class Call>
long sent(Call& call, int (*send)(Call*), int (*suspend)(const Call* const*, int, const timespec*),
          ssize_t (*result)(Call*)) {
  say("sent", send(&call));
  const Call* all[] = {&call};
  suspend(all, 1, nullptr);
  return result(&call);
}
template <class Open>
void opened(Open open) {
  ::close(dirty());
  const int fd = open();
  say("opened", fd < 0 ? fd : 0);
  if (fd >= 0) {
    const ssize_t wrote = ::write(fd, "xyz", 3);
    say("wrote", wrote);
    ::close(fd);
  }
}
template <class Stat, class Call>
void sized(Call call) {
  Stat found{};
  say("stat", call(dirty(), &found));
  std::printf("size %ld mode %o\n", static_cast<long>(found.st_size), found.st_mode & S_IFMT);
}
const timespec kTimes[2] = {{1000000, 5}, {2000000, 6}};
const timeval kTimevals[2] = {{1000000, 5}, {2000000, 6}};
void timed(int done) {
  say("done", done);
  struct stat found{};
  ::sync();
  ::stat("a", &found);
  std::printf("mtime %ld.%09ld\n", static_cast<long>(found.st_mtim.tv_sec), found.st_mtim.tv_nsec);
}
void print_to(int fd, int (*print)(int, const char*, va_list), const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("printed", print(fd, format, values));
  va_end(values);
}
void waited(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  say("child", status);
}
/// The script that a program starts writes a file, and the words it gets.
const char* script() {
  const int fd = ::open("program", O_WRONLY | O_CREAT | O_TRUNC, 0755);
  const std::string text =
      "#!/bin/sh\ncat a\necho captured=${EBBTIDE_CAPTURE:+yes} > /dev/null\nprintf '%s' more >> a\ncat a\necho "
      "\"$*\"\n";
  if (::write(fd, text.data(), text.size()) < 0) std::printf("no script\n");
  ::close(fd);
  return "./program";
}
template <class Start>
void started(Start start) {
  ::close(dirty());
  const char* const program = script();
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    start(program);
    ::_exit(99);
  }
  waited(child);
}
char* const kWords[] = {const_cast<char*>("program"), const_cast<char*>("one"), const_cast<char*>("two"), nullptr};
char* const kBare[] = {const_cast<char*>("PATH=/usr/bin:/bin"), nullptr};

using Calls = std::map<std::string, std::function<void()>>;

Calls opening() {
  return {
      {"open", [] { opened([] { return ::open("a", O_WRONLY | O_TRUNC); }); }},
      {"open64", [] { opened([] { return ::open64("a", O_WRONLY | O_APPEND); }); }},
      {"openat", [] { opened([] { return ::openat(AT_FDCWD, "a", O_WRONLY | O_TRUNC); }); }},
      {"openat64", [] { opened([] { return ::openat64(AT_FDCWD, "a", O_WRONLY); }); }},
      {"__open", [] { opened([] { return real_open("a", O_WRONLY | O_TRUNC); }); }},
      {"__open64", [] { opened([] { return real_open64("a", O_WRONLY | O_TRUNC); }); }},
      {"__open_2", [] { opened([] { return __open_2("a", O_WRONLY | O_TRUNC); }); }},
      {"__open64_2", [] { opened([] { return __open64_2("a", O_WRONLY | O_TRUNC); }); }},
      {"__openat_2", [] { opened([] { return __openat_2(AT_FDCWD, "a", O_WRONLY | O_TRUNC); }); }},
      {"__openat64_2", [] { opened([] { return __openat64_2(AT_FDCWD, "a", O_WRONLY | O_TRUNC); }); }},
      {"creat", [] { opened([] { return ::creat("a", 0644); }); }},
      {"creat64", [] { opened([] { return ::creat64("a", 0644); }); }},
      {"close",
       [] {
         say("close", ::close(dirty()));
         say("again", ::close(77));
       }},
      {"__close", [] { say("close", real_close(dirty())); }},
      {"dup",
       [] {
         const int fd = dirty(), other = ::dup(fd);
         say("wrote", ::write(other, "X", 1));
         say("wrote", ::write(fd, "Y", 1));
       }},
      {"dup2",
       [] {
         const int fd = dirty();
         ::dup2(fd, 50);
         ::close(fd);
         say("wrote", ::write(50, "X", 1));
       }},
      {"dup3",
       [] {
         const int fd = dirty();
         ::dup3(fd, 50, O_CLOEXEC);
         say("wrote", ::write(50, "X", 1));
       }},
      {"close_range",
       [] {
         const int fd = dirty();
         say("closed", ::close_range(static_cast<unsigned>(fd), ~0U, 0));
         say("wrote", ::write(fd, "X", 1));
       }},
      {"closefrom",
       [] {
         const int fd = dirty();
         ::closefrom(3);
         say("wrote", ::write(fd, "X", 1));
       }},
  };
}

Calls data() {
  return {
      {"write",
       [] {
         const int fd = dirty();
         say("wrote", ::write(fd, "more", 4));
         say("none", ::write(fd, "", 0));
       }},
      {"__write", [] { say("wrote", real_write(dirty(), "more", 4)); }},
      {"pwrite", [] { say("wrote", ::pwrite(dirty(), "more", 4, 100)); }},
      {"pwrite64",
       [] {
         const int fd = dirty("a", O_RDWR | O_CREAT | O_APPEND);
         say("wrote", ::pwrite64(fd, "more", 4, 2));
       }},
      {"__pwrite64", [] { say("wrote", real_pwrite(dirty(), "more", 4, 2)); }},
      {"writev",
       [] {
         say("wrote", ::writev(dirty(), two, 2));
         say("bad", ::writev(77, two, 2));
       }},
      {"pwritev", [] { say("wrote", ::pwritev(dirty(), two, 2, 3)); }},
      {"pwritev64", [] { say("wrote", ::pwritev64(dirty(), two, 2, 3)); }},
      {"pwritev2",
       [] {
         const int fd = dirty();
         say("wrote", ::pwritev2(fd, two, 2, -1, 0));
         say("synced", ::pwritev2(fd, two, 2, 1, RWF_DSYNC));
       }},
      {"pwritev64v2", [] { say("wrote", ::pwritev64v2(dirty(), two, 2, 3, 0)); }},
      {"read",
       [] {
         const int fd = dirty();
         ::lseek(fd, 4, SEEK_SET);
         said(::read(fd, room, 10));
         said(::read(fd, room, 100));
         said(::read(fd, room, 1));
       }},
      {"__read", [] { said(real_read(dirty_at(4), room, 10)); }},
      {"__read_chk", [] { said(__read_chk(dirty_at(4), room, 10, 100)); }},
      {"pread",
       [] {
         said(::pread(dirty(), room, 10, 30));
         said(::pread(dirty(), room, 10, -3));
       }},
      {"pread64", [] { said(::pread64(dirty(), room, 10, 20)); }},
      {"__pread64", [] { said(real_pread(dirty(), room, 10, 20)); }},
      {"__pread_chk", [] { said(__pread_chk(dirty(), room, 10, 20, 100)); }},
      {"__pread64_chk", [] { said(__pread64_chk(dirty(), room, 10, 20, 100)); }},
      {"readv", [] { said(::readv(dirty_at(4), two_in, 2)); }},
      {"preadv", [] { said(::preadv(dirty(), two_in, 2, 9)); }},
      {"preadv64", [] { said(::preadv64(dirty(), two_in, 2, 9)); }},
      {"preadv2", [] { said(::preadv2(dirty(), two_in, 2, 9, 0)); }},
      {"preadv64v2", [] { said(::preadv64v2(dirty(), two_in, 2, 9, 0)); }},
      {"dprintf", [] { say("printed", ::dprintf(dirty(), "%d-%s", 5, "x")); }},
      {"vdprintf", [] { print_to(dirty(), ::vdprintf, "%d-%s", 5, "x"); }},
      {"__dprintf_chk", [] { say("printed", __dprintf_chk(dirty(), 1, "%d-%s", 5, "x")); }},
      {"__vdprintf_chk",
       [] {
         print_to(
             dirty(), [](int fd, const char* format, va_list values) { return __vdprintf_chk(fd, 1, format, values); },
             "%d", 5);
       }},
      {"aio_write",
       [] {
         aiocb call{.aio_fildes = dirty(), .aio_buf = const_cast<char*>("AIO"), .aio_nbytes = 3, .aio_offset = 2};
         say("done", sent(call, ::aio_write, ::aio_suspend, ::aio_return));
       }},
      {"aio_write64",
       [] {
         aiocb64 call{.aio_fildes = dirty(), .aio_buf = const_cast<char*>("AIO"), .aio_nbytes = 3};
         say("done", sent(call, ::aio_write64, ::aio_suspend64, ::aio_return64));
       }},
      {"aio_read",
       [] {
         aiocb call{.aio_fildes = dirty(), .aio_buf = room, .aio_nbytes = 8, .aio_offset = 2};
         said(sent(call, ::aio_read, ::aio_suspend, ::aio_return));
       }},
      {"aio_read64",
       [] {
         aiocb64 call{.aio_fildes = dirty(), .aio_buf = room, .aio_nbytes = 8};
         said(sent(call, ::aio_read64, ::aio_suspend64, ::aio_return64));
       }},
  };
}

Calls sizes() {
  return {
      {"lseek",
       [] {
         const int fd = dirty();
         say("end", ::lseek(fd, -3, SEEK_END));
         say("here", ::lseek(fd, 1, SEEK_CUR));
         say("data", ::lseek(fd, 0, SEEK_DATA));
         say("hole", ::lseek(fd, 0, SEEK_HOLE));
       }},
      {"lseek64", [] { say("end", ::lseek64(dirty(), 0, SEEK_END)); }},
      {"__lseek", [] { say("end", real_lseek(dirty(), 0, SEEK_END)); }},
      {"stat", [] { sized<struct stat>([](int, auto* found) { return ::stat("a", found); }); }},
      {"lstat", [] { sized<struct stat>([](int, auto* found) { return ::lstat("a", found); }); }},
      {"fstat", [] { sized<struct stat>([](int fd, auto* found) { return ::fstat(fd, found); }); }},
      {"fstatat", [] { sized<struct stat>([](int, auto* found) { return ::fstatat(AT_FDCWD, "a", found, 0); }); }},
      {"stat64", [] { sized<struct stat64>([](int, auto* found) { return ::stat64("a", found); }); }},
      {"lstat64", [] { sized<struct stat64>([](int, auto* found) { return ::lstat64("a", found); }); }},
      {"fstat64", [] { sized<struct stat64>([](int fd, auto* found) { return ::fstat64(fd, found); }); }},
      {"fstatat64",
       [] { sized<struct stat64>([](int, auto* found) { return ::fstatat64(AT_FDCWD, "a", found, 0); }); }},
      {"__xstat", [] { sized<struct stat>([](int, auto* found) { return __xstat(1, "a", found); }); }},
      {"__lxstat", [] { sized<struct stat>([](int, auto* found) { return __lxstat(1, "a", found); }); }},
      {"__fxstat", [] { sized<struct stat>([](int fd, auto* found) { return __fxstat(1, fd, found); }); }},
      {"__fxstatat",
       [] { sized<struct stat>([](int, auto* found) { return __fxstatat(1, AT_FDCWD, "a", found, 0); }); }},
      {"statx",
       [] {
         dirty();
         struct statx found{};
         say("statx", ::statx(AT_FDCWD, "a", 0, STATX_SIZE, &found));
         say("size", static_cast<long>(found.stx_size));
       }},
      {"truncate", [] { say("done", ::truncate(dirty_path(), 10)); }},
      {"truncate64", [] { say("done", ::truncate64(dirty_path(), 50)); }},
      {"ftruncate",
       [] {
         const int fd = dirty();
         say("done", ::ftruncate(fd, 10));
         say("longer", ::ftruncate(fd, 20));
       }},
      {"ftruncate64", [] { say("done", ::ftruncate64(dirty(), 3)); }},
      {"fallocate", [] { say("done", ::fallocate(dirty(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4, 8)); }},
      {"fallocate64", [] { say("done", ::fallocate64(dirty(), 0, 30, 20)); }},
      {"posix_fallocate", [] { say("done", ::posix_fallocate(dirty(), 30, 20)); }},
      {"posix_fallocate64", [] { say("done", ::posix_fallocate64(dirty(), 30, 20)); }},
      {"futimens", [] { timed(::futimens(dirty(), kTimes)); }},
      {"utimensat", [] { timed(::utimensat(AT_FDCWD, dirty_path(), kTimes, 0)); }},
      {"utimes", [] { timed(::utimes(dirty_path(), kTimevals)); }},
      {"lutimes", [] { timed(::lutimes(dirty_path(), kTimevals)); }},
      {"futimes", [] { timed(::futimes(dirty(), kTimevals)); }},
      {"futimesat", [] { timed(::futimesat(AT_FDCWD, dirty_path(), kTimevals)); }},
      {"utime",
       [] {
         dirty();
         const utimbuf times{5, 6};
         timed(::utime("a", &times));
       }},
      {"fsync",
       [] {
         say("done", ::fsync(dirty()));
         say("bad", ::fsync(77));
       }},
      {"fdatasync", [] { say("done", ::fdatasync(dirty())); }},
      {"sync_file_range", [] { say("done", ::sync_file_range(dirty(), 0, 0, SYNC_FILE_RANGE_WRITE)); }},
      {"sync",
       [] {
         dirty();
         ::sync();
       }},
      {"syncfs", [] { say("done", ::syncfs(dirty())); }},
  };
}

Calls names() {
  return {
      {"unlink",
       [] {
         const int fd = dirty();
         say("done", ::unlink("a"));
         say("wrote", ::write(fd, "X", 1));
         said(::pread(fd, room, 100, 30));
       }},
      {"unlinkat", [] { say("done", ::unlinkat(AT_FDCWD, dirty_path(), 0)); }},
      {"remove", [] { say("done", ::remove(dirty_path())); }},
      {"rename",
       [] {
         const int fd = dirty();
         dirty("b");
         say("done", ::rename("a", "b"));
         say("wrote", ::write(fd, "X", 1));
         show("b");
       }},
      {"renameat",
       [] {
         say("done", ::renameat(AT_FDCWD, dirty_path(), AT_FDCWD, "b"));
         show("b");
       }},
      {"renameat2",
       [] {
         dirty();
         ::close(::open("b", O_CREAT | O_WRONLY, 0644));
         say("done", ::renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE));
         show("b");
       }},
      {"rename of a directory",
       [] {
         ::mkdir("d", 0755);
         const int fd = dirty("d/a");
         say("done", ::rename("d", "e"));
         say("wrote", ::write(fd, "X", 1));
         show("e/a");
       }},
      {"link",
       [] {
         const int fd = dirty();
         say("done", ::link("a", "b"));
         say("wrote", ::write(fd, "X", 1));
         ::unlink("a");
         say("wrote", ::write(fd, "Y", 1));
         show("b");
       }},
      {"linkat",
       [] {
         say("done", ::linkat(AT_FDCWD, dirty_path(), AT_FDCWD, "b", 0));
         show("b");
       }},
      {"symlink",
       [] {
         say("done", ::symlink(dirty_path(), "b"));
         ::close(::open("b", O_WRONLY | O_TRUNC));
       }},
      {"flock",
       [] {
         const int fd = dirty();
         say("done", ::flock(fd, LOCK_EX));
         say("other", ::flock(::open("a", O_RDONLY), LOCK_SH | LOCK_NB));
       }},
      {"lockf", [] { say("done", ::lockf(dirty(), F_LOCK, 0)); }},
      {"lockf64", [] { say("done", ::lockf64(dirty(), F_TLOCK, 0)); }},
      {"fcntl",
       [] {
         const int fd = dirty();
         struct flock one{};
         one.l_type = F_WRLCK;
         say("locked", ::fcntl(fd, F_SETLK, &one));
         say("asked", ::fcntl(fd, F_GETLK, &one));
         const int other = ::fcntl(fd, F_DUPFD, 60);
         say("copy", other);
         say("flags", ::fcntl(fd, F_SETFL, O_APPEND));
         ::lseek(fd, 0, SEEK_SET);
         say("wrote", ::write(other, "X", 1));
       }},
      {"fcntl64",
       [] {
         const int fd = dirty();
         say("copy", ::fcntl64(fd, F_DUPFD_CLOEXEC, 60));
         say("wrote", ::write(60, "X", 1));
       }},
      {"ioctl",
       [] {
         const int fd = dirty(), to = ::open("b", O_CREAT | O_RDWR, 0644);
         const int done = ::ioctl(to, FICLONE, fd);
         std::printf("cloned %d\n", done < 0);
         int flags = 0;
         say("flags", ::ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ? -1 : 0);
       }},
  };
}

Calls copies() {
  return {
      {"sendfile",
       [] {
         const int fd = dirty(), to = dirty("b");
         off_t at = 3;
         say("sent", ::sendfile(to, fd, &at, 20));
         show("b");
       }},
      {"sendfile64",
       [] {
         const int fd = dirty(), to = dirty("b");
         off64_t at = 3;
         say("sent", ::sendfile64(to, fd, &at, 20));
         show("b");
       }},
      {"splice",
       [] {
         int pipe[2];
         if (::pipe(pipe)) return;
         off64_t at = 2;
         say("in", ::splice(dirty(), &at, pipe[1], nullptr, 10, 0));
         say("out", ::splice(pipe[0], nullptr, dirty("b"), nullptr, 10, 0));
         show("b");
       }},
      {"copy_file_range",
       [] {
         off64_t at = 2;
         say("copied", ::copy_file_range(dirty(), &at, dirty("b"), nullptr, 10, 0));
         show("b");
       }},
      {"mmap",
       [] {
         const int fd = dirty();
         char* const seen = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
         std::printf("%.36s\n", seen);
         seen[1] = '!';
         say("wrote", ::pwrite(fd, "?", 1, 2));
         std::printf("%.36s\n", seen);
       }},
      {"mmap64",
       [] {
         const int fd = dirty();
         char* const seen = static_cast<char*>(::mmap64(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
         std::printf("%.36s\n", seen);
       }},
  };
}

void streamed(std::FILE* stream) {
  if (!stream) return say("stream", -1);
  std::fprintf(stream, "%s %d\n", "stream", 5);
  std::printf("at %ld\n", std::ftell(stream));
  std::fflush(stream);
  say("through its descriptor", ::write(::fileno(stream), "D", 1));
  say("closed", std::fclose(stream));
  show("a");
}

Calls streams() {
  return {
      {"fopen",
       [] {
         ::close(dirty());
         streamed(std::fopen("a", "w"));
         std::FILE* const in = std::fopen("a", "r");
         std::printf("%s", std::fgets(room, 100, in));
         std::printf("put %d\n", std::fputs("no", in));
         std::fclose(in);
         say("none", std::fopen("none", "r") ? 0 : -1);
       }},
      {"fopen64",
       [] {
         ::close(dirty());
         streamed(::fopen64("a", "a"));
         std::FILE* const both = ::fopen64("a", "r+");
         std::fseek(both, 5, SEEK_SET);
         std::fputs("+++", both);
         std::fseek(both, -2, SEEK_END);
         std::printf("%d\n", std::fgetc(both));
         std::fclose(both);
       }},
      {"fdopen",
       [] {
         streamed(::fdopen(dirty(), "w"));
         say("wrong", ::fdopen(::open("a", O_RDONLY), "w") ? 0 : -1);
       }},
      {"freopen",
       [] {
         ::close(dirty());
         std::FILE* stream = std::fopen("b", "w");
         std::fputs("first", stream);
         stream = std::freopen("a", "r+", stream);
         std::printf("%s\n", std::fgets(room, 10, stream));
         std::fseek(stream, 0, SEEK_END);
         std::fputs("end", stream);
         std::fclose(stream);
         show("b");
       }},
      {"freopen64",
       [] {
         ::close(dirty());
         std::fflush(stdout);
         const int out = ::dup(1);
         if (!::freopen64("a", "a", stdout)) ::_exit(1);
         std::printf("printed");
         std::fflush(stdout);
         ::dup2(out, 1);
       }},
      {"std::ofstream",
       [] {
         {
           std::ofstream out("a", std::ios::binary);
           out << "stream " << 5 << '\n' << std::string(20000, 'x');
           out.seekp(2);
           out << "!";
         }
         show("a");
         {
           std::fstream both("a", std::ios::in | std::ios::out | std::ios::app);
           both << "appended";
         }
         std::ifstream in("a");
         std::string word;
         in >> word;
         std::cout << word << std::endl;
         in.seekg(-8, std::ios::end);
         in >> word;
         std::cout << word << std::endl;
       }},
  };
}

Calls starts() {
  return {
      {"fork",
       [] {
         const int fd = dirty();
         std::fflush(stdout);
         const pid_t child = ::fork();
         if (child == 0) {
           const bool wrote = ::write(fd, "child", 5) == 5;
           ::_exit(wrote ? 3 : 4);
         }
         waited(child);
         say("wrote", ::write(fd, "parent", 6));
       }},
      {"execve", [] { started([](const char* program) { ::execve(program, kWords, kBare); }); }},
      {"execv", [] { started([](const char* program) { ::execv(program, kWords); }); }},
      {"execvp", [] { started([](const char* program) { ::execvp(program, kWords); }); }},
      {"execvpe", [] { started([](const char* program) { ::execvpe(program, kWords, kBare); }); }},
      {"execl", [] { started([](const char* program) { ::execl(program, "program", "one", "two", nullptr); }); }},
      {"execlp", [] { started([](const char* program) { ::execlp(program, "program", "one", nullptr); }); }},
      {"execle", [] { started([](const char* program) { ::execle(program, "program", "one", nullptr, kBare); }); }},
      {"fexecve", [] { started([](const char* program) { ::fexecve(::open(program, O_RDONLY), kWords, environ); }); }},
      {"posix_spawn",
       [] {
         ::close(dirty());
         pid_t child = 0;
         const char* const program = script();
         std::fflush(stdout);
         say("spawned", ::posix_spawn(&child, program, nullptr, nullptr, kWords, kBare));
         waited(child);
       }},
      {"posix_spawnp",
       [] {
         ::close(dirty());
         pid_t child = 0;
         const char* const program = script();
         std::fflush(stdout);
         say("spawned", ::posix_spawnp(&child, program, nullptr, nullptr, kWords, environ));
         waited(child);
       }},
  };
}

}  // namespace

int main(int count, char** words) {
  Calls all;
  for (const auto& some : {opening(), data(), sizes(), names(), copies(), streams(), starts()})
    all.insert(some.begin(), some.end());
  if (count == 2 && words[1] == std::string("--list")) {
    for (const auto& [name, call] : all) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (count != 3 || !all.contains(words[1]) || ::chdir(words[2]) != 0) return 2;
  all[words[1]]();
  show("a");
  return 0;
}
