#include "capture/preload/captured.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ebb::capture {
namespace {

// The one thing that the library remembers. A forked child inherits it; an executed program maps it anew.
Region* mapped = nullptr;

// Files that are not below DIR, as this thread met them last: they are written straight. Should one get a name below
// DIR later, it is still not captured, which is always right.
struct Outside {
  std::uint64_t dev, ino;
};
constexpr std::size_t kOutside = 64;
thread_local Outside outside[kOutside];

constexpr int kPatience = 50;  // milliseconds between two looks at whether the writer lives

bool regular(int fd, struct stat& found) { return ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode); }
int flags_of(int fd) { return static_cast<int>(::syscall(SYS_fcntl, fd, F_GETFL)); }
off_t position_of(int fd) { return ::syscall(SYS_lseek, fd, off_t{0}, SEEK_CUR); }
void set_position(int fd, off_t to) { ::syscall(SYS_lseek, fd, to, SEEK_SET); }

// Waits for the writer with the lock given up; the entry may be another file's afterwards.
void wait_for_writer(Region* region, Locked& lock, std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  lock.unlock();
  if (writer_gone(region)) {
    end_capture(region);
  } else {
    wake_writer(region);
    wait_on(word, seen, kPatience);
  }
  lock.lock();
}

void drain_locked(Region* region, Locked& lock, std::uint32_t at) {
  File& file = region->file[at];
  while (file.first.load() != kNone) {
    const std::uint32_t seen = file.changes.load();
    file.urgent = 1;
    wait_for_writer(region, lock, file.changes, seen);
  }
}

std::uint32_t find(Region* region, const struct stat& file) { return find(region, file.st_dev, file.st_ino); }
bool is(const File& entry, const struct stat& file) { return has_key(entry, file.st_dev, file.st_ino); }

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

// The part of [from, to) that is in a block, from its beginning.
struct Part {
  std::uint32_t begin, end;
};
Part part_of(std::uint64_t block, off_t from, off_t to) {
  const auto first = static_cast<off_t>(block * kChunk);
  return {static_cast<std::uint32_t>(std::max(from, first) - first),
          static_cast<std::uint32_t>(std::min(to, first + static_cast<off_t>(kChunk)) - first)};
}

// Walks over the pieces of a call.
class Pieces {
 public:
  Pieces(const iovec* pieces) : piece_(pieces) {}
  template <class Copy>
  void take(std::size_t bytes, Copy copy) {
    while (bytes) {
      while (done_ == piece_->iov_len) {
        ++piece_;
        done_ = 0;
      }
      const std::size_t now = std::min(bytes, piece_->iov_len - done_);
      copy(static_cast<char*>(piece_->iov_base) + done_, now);
      done_ += now;
      bytes -= now;
    }
  }

 private:
  const iovec* piece_;
  std::size_t done_ = 0;
};

enum class Stored { yes, wait_for_pool, wait_for_file, no_space };

// [from, to) goes to the pool: all of it or nothing. The caller has the file's lock.
Stored store(Region* region, std::uint32_t at, int fd, const struct stat& found, const iovec* pieces, off_t from,
             off_t to) {
  File& file = region->file[at];
  const std::uint64_t first = static_cast<std::uint64_t>(from) / kChunk,
                      last = static_cast<std::uint64_t>(to - 1) / kChunk;
  std::uint32_t missing = 0;
  for (std::uint64_t block = first; block <= last; ++block) {
    const std::uint32_t known = chunk_for(region, at, block);
    if (known == kNone) {
      ++missing;
      continue;
    }
    const Chunk& chunk = chunk_table(region)[known];
    const Part part = part_of(block, from, to);
    if (chunk.sealed || part.begin > chunk.end || part.end < chunk.begin) return Stored::wait_for_file;
  }
  std::uint32_t fresh = kNone;
  if (missing && (fresh = reserve(region, at, missing)) == kNone) return Stored::wait_for_pool;
  // Bytes first: what is not listed yet, or behind a chunk's end, is not seen. The parts that lie over earlier bytes
  // are what the real call would write as well, if disk space is refused.
  const std::int64_t now = milliseconds_now();
  Pieces bytes(pieces);
  std::uint32_t next_fresh = fresh;
  for (std::uint64_t block = first; block <= last; ++block) {
    const Part part = part_of(block, from, to);
    std::uint32_t chunk = chunk_for(region, at, block);
    if (chunk == kNone) {
      chunk = next_fresh;
      Chunk& one = chunk_table(region)[chunk];
      next_fresh = one.next;
      one.begin = one.end = one.allocated = part.begin;
      one.block = block;
      one.born = now;
    }
    char* to_bytes = bytes_of(region, chunk) + part.begin;
    const std::size_t size = part.end - part.begin;
    if (size >= (std::size_t{32} << 10)) {  // one call instead of a page fault a page
      char* const page = bytes_of(region, chunk) + part.begin / 4096 * 4096;
      ::madvise(page, static_cast<std::size_t>(to_bytes + size - page), 23 /* MADV_POPULATE_WRITE */);
    }
    bytes.take(size, [&](const char* piece, std::size_t now_bytes) {
      std::memcpy(to_bytes, piece, now_bytes);
      to_bytes += now_bytes;
    });
  }
  // Then disk space, where the file may have none; this lengthens it too.
  const std::uint32_t unit =
      found.st_blksize >= 512 && found.st_blksize <= 4096 ? static_cast<std::uint32_t>(found.st_blksize) : 4096;
  const auto round_up = [&](std::uint32_t value) { return (value + unit - 1) / unit * unit; };
  off_t size = found.st_size;
  next_fresh = fresh;
  for (std::uint64_t block = first; block <= last; ++block) {
    std::uint32_t known = chunk_for(region, at, block);
    if (known == kNone) {
      known = next_fresh;
      next_fresh = chunk_table(region)[known].next;
    }
    const Chunk& chunk = chunk_table(region)[known];
    const Part part = part_of(block, from, to);
    if (part.begin >= chunk.begin && part.end <= chunk.allocated) continue;
    const auto offset = static_cast<off_t>(block * kChunk);
    if (::syscall(SYS_fallocate, fd, 0, offset + part.begin, static_cast<off_t>(part.end - part.begin)) != 0) {
      while (fresh != kNone) {
        const std::uint32_t next = chunk_table(region)[fresh].next;
        release(region, fresh);
        fresh = next;
      }
      return Stored::no_space;
    }
    size = std::max(size, offset + part.end);
  }
  if (to > size && ::syscall(SYS_ftruncate, fd, to) != 0) {
    while (fresh != kNone) {
      const std::uint32_t next = chunk_table(region)[fresh].next;
      release(region, fresh);
      fresh = next;
    }
    return Stored::no_space;
  }
  for (std::uint64_t block = first; block <= last; ++block) {
    const Part part = part_of(block, from, to);
    std::uint32_t known = chunk_for(region, at, block);
    if (known == kNone) {
      known = fresh;
      fresh = chunk_table(region)[known].next;
      link(region, known);
    }
    Chunk& chunk = chunk_table(region)[known];
    chunk.allocated = std::max(chunk.allocated, round_up(part.end));
    chunk.begin = std::min(chunk.begin, part.begin);
    chunk.end = std::max(chunk.end, part.end);
  }
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &time);
  file.wrote_seconds = time.tv_sec;
  file.wrote_nanoseconds = time.tv_nsec;
  file.closed = 0;
  const std::uint32_t dirty = region->ready.load() - region->free.load();
  if (missing && (dirty <= missing || dirty > region->most.load() / 4)) wake_writer(region);
  return Stored::yes;
}

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

void mark_stale(Region* region, const struct stat& file) {
  const std::uint32_t at = find(region, file);
  if (at == kNone) return;
  const Locked lock(region, at);
  if (is(region->file[at], file)) region->file[at].stale_path = 1;
}

void drain_program(Region* region, const struct stat& file) {
  for (;;) {
    const std::uint32_t at = find(region, file);
    if (at == kNone) return;
    File& entry = region->file[at];
    Locked lock(region, at);
    drain_locked(region, lock, at);
    if (!is(entry, file) || entry.state.load() != FileState::open || region->through.load()) return;
    if (entry.error || entry.sync_owed.load()) return;  // it stays open; executing it fails with ETXTBSY
    entry.closed = 1;
    const std::uint32_t seen = entry.changes.load();
    wait_for_writer(region, lock, entry.changes, seen);
  }
}

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

void drain(Region* region, const struct stat& file) {
  const std::uint32_t at = find(region, file);
  if (at == kNone || region->file[at].first.load() == kNone) return;
  const int before = errno;
  Locked lock(region, at);
  if (is(region->file[at], file)) drain_locked(region, lock, at);
  errno = before;
}

void drain(int fd) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  if (region && regular(fd, found)) drain(region, found);
  errno = before;
}

ssize_t drain_and(const struct stat& file, Real real) {
  Region* const region = active_files();
  const std::uint32_t at = region ? find(region, file) : kNone;
  if (at == kNone) return real();
  const int before = errno;
  Locked lock(region, at);
  if (is(region->file[at], file)) drain_locked(region, lock, at);
  errno = before;
  return real();
}

ssize_t drain_and(int fd, Real real) {
  struct stat found{};
  const int before = errno;
  const bool known = active_files() && regular(fd, found);
  errno = before;
  return known ? drain_and(found, real) : real();
}

void drain_all() {
  Region* const region = active_files();
  if (!region) return;
  const int before = errno;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    if (region->file[at].first.load() == kNone) continue;
    Locked lock(region, at);
    drain_locked(region, lock, at);
  }
  errno = before;
}

void drain_name(int directory, const char* path) {
  Region* const region = active_files();
  struct stat found{};
  if (!region || !path) return;
  const int before = errno;
  if (::fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISREG(found.st_mode)) {
      drain(region, found);
      mark_stale(region, found);
    } else if (S_ISDIR(found.st_mode)) {
      drain_all();
      for (std::uint32_t at = 0; at < region->high.load(); ++at) {
        const Locked lock(region, at);
        region->file[at].stale_path = 1;
      }
    }
  }
  errno = before;
}

void let_go(int fd) {
  Region* const region = active();
  struct stat found{};
  char path[kPath];
  const int before = errno;
  if (region && regular(fd, found)) {
    std::uint32_t at = find(region, found);
    if (at == kNone && path_of(region, fd, path)) {
      at = find_or_add(region, found.st_dev, found.st_ino, FileState::through, path);
      if (at == kNone) {  // no place to remember it: then no file is captured any more
        region->ending = 1;
        wake_writer(region);
        while (!writer_gone(region)) wait_on(region->freed, region->freed.load(), kPatience);
        end_capture(region);
      }
    }
    if (at != kNone) {
      Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        drain_locked(region, lock, at);
        // One that the writer is about to open is dealt with by the first write, which finds no chunk either way.
        while (is(file, found) && file.state.load() == FileState::requested && !region->through.load()) {
          const std::uint32_t seen = file.changes.load();
          if (file.state.load() == FileState::requested) wait_for_writer(region, lock, file.changes, seen);
        }
        if (is(file, found)) file.state = FileState::through;
      }
    }
  }
  errno = before;
}

void drain_program(int directory, const char* path, int flags) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  if (region && path && ::fstatat(directory, path, &found, flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) == 0) {
    drain_program(region, found);
  }
  errno = before;
}

int take_error(int fd, bool* defer) {
  *defer = false;
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  int error = 0;
  if (region && regular(fd, found)) {
    const std::uint32_t at = find(region, found);
    if (at != kNone) {
      Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        if (!region->defer) drain_locked(region, lock, at);
        error = file.error;
        file.error = 0;
        *defer = !error && region->defer && file.state.load() == FileState::open && !region->through.load();
        if (*defer) {
          file.sync_owed = 1;
          region->deferred.fetch_add(1);
        }
      }
    }
  }
  errno = before;
  return error;
}

int note_close(int fd) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  int error = 0;
  if (region && regular(fd, found) && (flags_of(fd) & O_ACCMODE) != O_RDONLY) {
    const std::uint32_t at = find(region, found);
    if (at != kNone) {
      const Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        error = file.error;
        file.error = 0;
        file.closed = 1;
      }
    }
  }
  errno = before;
  return error;
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

bool defer_all() {
  Region* const region = active();
  if (!region || !region->defer) return false;
  const int before = errno;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    if (region->file[at].state.load() != FileState::open) continue;
    const Locked lock(region, at);
    if (region->file[at].state.load() == FileState::open) region->file[at].sync_owed = 1;
  }
  region->deferred.fetch_add(1);
  errno = before;
  return true;
}

}  // namespace ebb::capture
