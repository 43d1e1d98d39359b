/* Loaded before a job of reliability/veloc/trial.py: the N-th change that one rank makes to files in a directory fails.
 * FAIL_RANK, FAIL_AT, FAIL_ERRNO, FAIL_IN (a part of the path); FAIL_TOLD: the file that gets a line when it has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int calls;

static void tell(const char* path) {
  const char* const told = getenv("FAIL_TOLD");
  const int file = told ? open(told, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (file < 0 || dprintf(file, "%s\n", path) < 0) abort();
  close(file);
}

static int in_turn(const char* path) {
  const char *const rank = getenv("OMPI_COMM_WORLD_RANK"), *const chosen = getenv("FAIL_RANK");
  const char *const at = getenv("FAIL_AT"), *const in = getenv("FAIL_IN"), *const code = getenv("FAIL_ERRNO");
  if (!rank || !chosen || !at || !in || !code || strcmp(rank, chosen) != 0 || !strstr(path, in)) return 0;
  if (atomic_fetch_add(&calls, 1) + 1 != atoi(at)) return 0;
  tell(path);
  errno = atoi(code);
  return 1;
}

static int fails(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return in_turn(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  return fails(file) ? -1 : REAL(pwrite)(file, data, bytes, at);
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  return fails(file) ? -1 : REAL(pwrite64)(file, data, bytes, at);
}
int fsync(int file) { return fails(file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fails(file) ? -1 : REAL(fdatasync)(file); }
int rename(const char* from, const char* to) { return in_turn(to) ? -1 : REAL(rename)(from, to); }
