#include "capture/preload/captured.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <sys/resource.h>

#include "capture/preload/entry.hpp"
#include "capture/preload/pool_write.hpp"

namespace ebb::capture {
namespace {

// Files that are not below DIR, as this thread met them last: they are written straight. Should one get a name below
// DIR later, it is still not captured, which is always right.
struct Outside {
  std::uint64_t dev, ino;
};
constexpr std::size_t kOutside = 64;
thread_local Outside outside[kOutside];

// The entry of a file that is written for the first time; kNone: it is not captured.
std::uint32_t take(Region* region, int fd, const struct stat& found) {
  Outside& last = outside[found.st_ino % kOutside];
  if (last.ino == found.st_ino && last.dev == found.st_dev) return kNone;
  char path[kPath];
  if (found.st_nlink == 0 || !path_of(region, fd, path)) {
    last = {found.st_dev, found.st_ino};
    return kNone;
  }
  const std::uint32_t at = find_or_add(region, found.st_dev, found.st_ino, FileState::requested, path);
  if (at != kNone) wake_writer(region);
  return at;
}

std::uint32_t in_block(off_t at) { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(at) % kChunk); }

// A file is lengthened with signals blocked, so SIGXFSZ comes once, whichever calls are refused; only a write into what
// is there already has to look at the limit.
off_t largest_size() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(LLONG_MAX)) return LLONG_MAX;
  return static_cast<off_t>(limit.rlim_cur);
}

// Whether the file may still be written at the path that the entry has; if not, it is let go.
bool path_is_known(Region* region, Locked& lock, std::uint32_t at, int fd) {
  File& file = region->file[at];
  if (!file.stale_path) return true;
  char path[kPath];
  struct stat found{};
  if (::fstat(fd, &found) != 0) return false;
  if (found.st_nlink > 0 && path_of(region, fd, path)) {
    std::strcpy(file.path, path);
    file.stale_path = 0;
    return true;
  }
  drain_locked(region, lock, at);
  if (is(file, found)) file.state = FileState::through;
  return false;
}

std::size_t sum_of(const iovec* pieces, int count) {
  std::size_t total = 0;
  for (int i = 0; i < count; ++i) {
    if (pieces[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - total) return 0;  // the real call refuses it
    total += pieces[i].iov_len;
  }
  return total;
}

}  // namespace

ssize_t write_captured(int fd, const iovec* from, int count, off_t at, bool straight, Real real) {
  Region* const region = active();
  struct stat found{};
  if (!region || at < -1 || count < 0 || count > IOV_MAX) return real();
  const int before = errno;
  const std::size_t total = sum_of(from, count);
  if (total == 0 || !regular(fd, found)) {
    errno = before;
    return real();
  }
  const int flags = flags_of(fd);
  if ((flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH)) return real();
  straight = straight || (flags & (O_DIRECT | O_DSYNC | O_SYNC));
  for (;;) {
    std::uint32_t index = find(region, found);
    if (index == kNone && (straight || (index = take(region, fd, found)) == kNone)) return real();
    File& file = region->file[index];
    Locked lock(region, index);
    if (!is(file, found)) continue;
    if (file.state.load() == FileState::requested) {
      const std::uint32_t seen = file.changes.load();
      if (file.state.load() == FileState::requested) wait_for_writer(region, lock, file.changes, seen);
      continue;
    }
    if (file.error) {
      errno = file.error;
      file.error = 0;
      return -1;
    }
    if (region->through.load() || file.state.load() == FileState::through) {
      drain_locked(region, lock, index);
      lock.unlock();
      return real();
    }
    if (!path_is_known(region, lock, index, fd)) continue;
    if (::fstat(fd, &found) != 0) return real();
    const off_t begin = flags & O_APPEND ? found.st_size : at >= 0 ? at : position_of(fd);
    const std::size_t most = std::size_t{region->most.load()} / 2 * kChunk;
    if (straight || begin < 0 || total > most || static_cast<off_t>(total) > LLONG_MAX - begin ||
        (begin + static_cast<off_t>(total) <= found.st_size && begin + static_cast<off_t>(total) > largest_size())) {
      drain_locked(region, lock, index);
      if (!is(file, found)) continue;
      return real();
    }
    const off_t end = begin + static_cast<off_t>(total);
    const std::uint32_t freed = region->freed.load(), changes = file.changes.load();
    switch (store(region, index, fd, found, from, begin, end)) {
      case Stored::yes:
        if (at < 0) set_position(fd, end);
        errno = before;
        return static_cast<ssize_t>(total);
      case Stored::wait_for_file:
        file.urgent = 1;
        wait_for_writer(region, lock, file.changes, changes);
        break;
      case Stored::wait_for_pool:
        region->starved.fetch_add(1);
        wait_for_writer(region, lock, region->freed, freed);
        if (region->starved.load()) region->starved.fetch_sub(1);
        break;
      case Stored::no_space:
        drain_locked(region, lock, index);
        if (!is(file, found)) break;
        return real();
    }
  }
}

ssize_t read_captured(int fd, const iovec* to, int count, off_t at, bool straight, Real real) {
  Region* const region = active_files();
  struct stat found{};
  if (!region || at < -1 || count <= 0) return real();
  const int before = errno;
  if (!regular(fd, found)) {
    errno = before;
    return real();
  }
  const std::uint32_t index = find(region, found);
  if (index == kNone || region->file[index].first.load() == kNone) return real();
  Locked lock(region, index);
  const File& file = region->file[index];
  if (straight || (flags_of(fd) & O_DIRECT)) drain_locked(region, lock, index);
  if (!is(file, found) || file.first.load() == kNone) {
    lock.unlock();
    return real();
  }
  const off_t begin = at >= 0 ? at : position_of(fd);
  const ssize_t got = real();
  if (got <= 0 || begin < 0) return got;
  const off_t end = begin + got;
  for (std::uint32_t chunk = file.first.load(); chunk != kNone; chunk = chunk_table(region)[chunk].next) {
    const Chunk& one = chunk_table(region)[chunk];
    const auto block = static_cast<off_t>(one.block * kChunk);
    const off_t from = std::max(begin, block + one.begin), until = std::min(end, block + one.end);
    if (from >= until) continue;
    Pieces pieces(to);
    pieces.take(static_cast<std::size_t>(from - begin), [](char*, std::size_t) {});
    const char* bytes = bytes_of(region, chunk) + in_block(from);
    pieces.take(static_cast<std::size_t>(until - from), [&](char* piece, std::size_t size) {
      std::memcpy(piece, bytes, size);
      bytes += size;
    });
  }
  return got;
}

}  // namespace ebb::capture
