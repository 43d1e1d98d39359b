// A disk that cannot be written, for the writer alone: preloaded, it makes the calls of ebbtide-defer fail for the
// files whose name ends in ".bad", with the errno FAILING_DISK.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int path_of(int fd, char* path, size_t size) {
  char link[64];
  if (strcmp(program_invocation_short_name, "ebbtide-defer") != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, size);
  return length < 0 ? 0 : (int)length;
}

// The name goes to the file FAILING_LOG, if there is one.
static void record(int fd) {
  char path[4096];
  const int length = path_of(fd, path, sizeof path),
            log = getenv("FAILING_LOG") ? open(getenv("FAILING_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (length > 0 && log >= 0) dprintf(log, "%.*s\n", length, path);
  if (log >= 0) close(log);
}

static int fails(int fd) {
  char path[4096];
  const int length = path_of(fd, path, sizeof path);
  if (length < 4 || memcmp(path + length - 4, ".bad", 4) != 0) return 0;
  errno = atoi(getenv("FAILING_DISK"));
  return 1;
}

int fsync(int fd) { return fails(fd) ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags) {
  typedef int (*Call)(int, off64_t, off64_t, unsigned);
  record(fd);
  return fails(fd) ? -1 : ((Call)dlsym(RTLD_NEXT, "sync_file_range"))(fd, offset, count, flags);
}
int syncfs(int fd) {
  if (!strcmp(program_invocation_short_name, "ebbtide-defer") && getenv("FAILING_SYSTEM")) {
    errno = atoi(getenv("FAILING_SYSTEM"));
    return -1;
  }
  return ((int (*)(int))dlsym(RTLD_NEXT, "syncfs"))(fd);
}
// With NO_CACHESTAT the kernel is one before 6.5.
long syscall(long number, ...) {
  long given[6];
  va_list all;
  va_start(all, number);
  for (int i = 0; i < 6; ++i) given[i] = va_arg(all, long);
  va_end(all);
  if (number == 451 && getenv("NO_CACHESTAT")) {
    errno = ENOSYS;
    return -1;
  }
  typedef long (*Call)(long, long, long, long, long, long, long);
  return ((Call)dlsym(RTLD_NEXT, "syscall"))(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
