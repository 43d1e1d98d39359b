// The memory that the run's processes share, and which paths are captured.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "capture/preload/captured.hpp"
#include "capture/preload/entry.hpp"

namespace ebb::capture {
namespace {

// The one thing that the library remembers. A forked child inherits it; an executed program maps it anew.
Region* mapped = nullptr;

__attribute__((constructor)) void begin() {
  const char* const path = std::getenv("EBBTIDE_CAPTURE");
  if (!path || mapped) return;
  const int before = errno;
  mapped = map_region(path);
  // The C library's own streams read and write by calls that cannot be taken over.
  for (int fd = 0; mapped && fd < 3; ++fd) let_go(fd);
  errno = before;
}

__attribute__((destructor)) void end() { active(); }

}  // namespace

Region* active() {
  Region* const region = mapped;
  if (!region) return nullptr;
  if (!writer_gone(region)) return region;
  const int before = errno;
  end_capture(region);
  mapped = nullptr;
  errno = before;
  return nullptr;
}

Region* active_files() {
  Region* const region = active();
  return region && region->live.load() ? region : nullptr;
}

bool path_of(Region* region, int fd, char* path) {
  char name[32] = "/proc/self/fd/";
  char digits[12];
  std::size_t length = std::strlen(name), count = 0;
  for (unsigned rest = static_cast<unsigned>(fd); count == 0 || rest; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  while (count) name[length++] = digits[--count];
  name[length] = 0;
  const int before = errno;
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, name, path, kPath - 1);
  errno = before;
  if (size <= 0 || size >= static_cast<long>(kPath) - 1) return false;
  path[size] = 0;
  const std::size_t directory = std::strlen(region->directory);
  constexpr char kDeleted[] = " (deleted)";
  constexpr std::size_t kEnd = sizeof kDeleted - 1;
  if (static_cast<std::size_t>(size) > kEnd && std::strcmp(path + size - kEnd, kDeleted) == 0) return false;
  return std::strncmp(path, region->directory, directory) == 0 && (path[directory] == '/' || directory == 1);
}

bool is_below(int fd) {
  Region* const region = active();
  struct stat found{};
  char path[kPath];
  const int before = errno;
  const bool below = region && regular(fd, found) && path_of(region, fd, path);
  errno = before;
  return below;
}

}  // namespace ebb::capture
