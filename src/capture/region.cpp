#include "capture/region.hpp"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ebb::capture {
namespace {

// Raw, for these functions run in the preloaded library: a call by name would be captured.
void close_raw(int fd) { ::syscall(SYS_close, fd); }

void* map_raw(void* where, std::size_t bytes, int protection, int flags, int fd) {
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, protection, flags, fd, 0));
}

std::uint64_t block_signals() {
  const std::uint64_t all = ~std::uint64_t{0};
  std::uint64_t before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
  return before;
}

void restore_signals(std::uint64_t before) {
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

// Chunks that a dead process reserved for this file but did not add to its list.
void free_unlisted(Region* region, std::uint32_t file) {
  for (std::uint32_t chunk = 0; chunk < region->ready.load(); ++chunk) {
    if (chunk_table(region)[chunk].file.load() != file) continue;
    std::uint32_t at = region->file[file].first.load();
    while (at != kNone && at != chunk) at = chunk_table(region)[at].next;
    if (at == kNone) release(region, chunk);
  }
}

// A lock whose guarded words are consistent at every instant, the pool's or the table's.
class Short {
 public:
  explicit Short(pthread_mutex_t& lock) : lock_(lock), signals_(block_signals()) {
    if (::pthread_mutex_lock(&lock_) == EOWNERDEAD) {
      ::pthread_mutex_consistent(&lock_);
      died_ = true;
    }
  }
  ~Short() {
    ::pthread_mutex_unlock(&lock_);
    restore_signals(signals_);
  }
  Short(const Short&) = delete;
  bool died() const { return died_; }

 private:
  pthread_mutex_t& lock_;
  const std::uint64_t signals_;
  bool died_ = false;
};

void make_lock(pthread_mutex_t& lock) {
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&lock, &kind);
  ::pthread_mutexattr_destroy(&kind);
}

std::uint32_t count_free(Region* region) {
  std::uint32_t count = 0;
  for (std::uint32_t chunk = 0; chunk < region->ready.load(); ++chunk) {
    count += chunk_table(region)[chunk].file.load() == kNone;
  }
  return count;
}

std::uint32_t place_of(std::uint64_t dev, std::uint64_t ino) {
  return static_cast<std::uint32_t>((ino * 0x9E3779B97F4A7C15 + dev) >> 40) % kFiles;
}

}  // namespace

Region* map_region(const char* path) {
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0));
  if (fd < 0) return nullptr;
  Region* region = nullptr;
  void* const head = map_raw(nullptr, sizeof(Region), PROT_READ, MAP_SHARED, fd);
  struct stat found{};
  if (head != MAP_FAILED && ::fstat(fd, &found) == 0 && found.st_size >= static_cast<off_t>(sizeof(Region)) &&
      static_cast<const Region*>(head)->magic == kMagic) {
    // The pool's last chunks may be behind the end of the file: they are not used before they have memory.
    // At a huge page, so that huge pages of the pool are mapped as such.
    const std::size_t bytes = static_cast<const Region*>(head)->bytes;
    void* const room = map_raw(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    const auto begin = (reinterpret_cast<std::uintptr_t>(room) + kHuge - 1) / kHuge * kHuge;
    void* const all = room == MAP_FAILED ? room
                                         : map_raw(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_FIXED, fd);
    if (all != MAP_FAILED) region = static_cast<Region*>(all);
  }
  if (head != MAP_FAILED) ::munmap(head, sizeof(Region));
  close_raw(fd);
  return region;
}

void lay_out(Region* region, const char* directory, std::uint32_t chunks, std::uint32_t ready, bool defer) {
  region->pool_at = pool_offset(chunks);
  region->bytes = region->pool_at + chunks * kChunk;
  region->chunks = chunks;
  region->most = chunks;
  region->defer = defer;
  region->owner = ::getpid();
  std::strncpy(region->directory, directory, kPath - 1);
  make_lock(region->writer_lock);
  make_lock(region->table_lock);
  make_lock(region->pool_lock);
  for (File& file : region->file) {
    make_lock(file.lock);
    file.first = kNone;
  }
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) chunk_table(region)[chunk].file = kNone;
  region->ready = ready;
  region->free = ready;
  region->magic = kMagic;
}

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, int milliseconds) {
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void wake_writer(Region* region) {
  region->wake.fetch_add(1);
  if (region->asleep.load()) ::syscall(SYS_futex, &region->wake, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

std::int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * std::int64_t{1000} + now.tv_nsec / 1000000;
}

Locked::Locked(Region* region, std::uint32_t file) : region_(region), file_(file) { lock(); }
Locked::~Locked() { unlock(); }

void Locked::lock() {
  if (held_) return;
  signals_ = block_signals();
  pthread_mutex_t& lock = region_->file[file_].lock;
  if (::pthread_mutex_lock(&lock) == EOWNERDEAD) {
    ::pthread_mutex_consistent(&lock);
    free_unlisted(region_, file_);
  }
  held_ = true;
}

void Locked::unlock() {
  if (!held_) return;
  held_ = false;
  ::pthread_mutex_unlock(&region_->file[file_].lock);
  restore_signals(signals_);
}

std::uint32_t find(Region* region, std::uint64_t dev, std::uint64_t ino) {
  const std::uint32_t from = place_of(dev, ino);
  for (std::uint32_t step = 0; step < kFiles; ++step) {
    const std::uint32_t at = (from + step) % kFiles;
    const File& file = region->file[at];
    if (!file.used.load()) return kNone;
    if (has_key(file, dev, ino)) return at;
  }
  return kNone;
}

std::uint32_t find_or_add(Region* region, std::uint64_t dev, std::uint64_t ino, FileState state, const char* path) {
  const Short lock(region->table_lock);
  if (const std::uint32_t known = find(region, dev, ino); known != kNone) return known;
  const std::uint32_t from = place_of(dev, ino);
  for (std::uint32_t step = 0; step < kFiles; ++step) {
    const std::uint32_t at = (from + step) % kFiles;
    File& file = region->file[at];
    if (file.used.load() && file.state.load() != FileState::free) continue;
    file.error = 0;
    file.urgent = file.closed = file.sync_owed = file.stale_path = 0;
    file.may_reserve = file.reserved = 0;
    file.space_from = file.space_to = 0;
    std::strncpy(file.path, path, kPath - 1);
    file.dev = dev;
    file.ino = ino;
    file.state = state;
    file.used = 1;
    if (at >= region->high.load()) region->high = at + 1;
    region->live.fetch_add(1);
    return at;
  }
  return kNone;
}

void forget(Region* region, std::uint32_t at) {
  const Short lock(region->table_lock);
  File& file = region->file[at];
  if (file.state.exchange(FileState::free) != FileState::free) region->live.fetch_sub(1);
  wake_all(file.changes);
}

std::uint32_t reserve(Region* region, std::uint32_t file, std::uint32_t count) {
  const Short lock(region->pool_lock);
  if (lock.died()) region->free = count_free(region);
  if (region->free.load() < count) return kNone;
  const std::uint32_t ready = region->ready.load();
  std::uint32_t at = region->hint.load(), found = 0, first = kNone;
  for (std::uint32_t step = 0; step < ready && found < count; ++step, ++at) {
    if (at >= ready) at = 0;
    Chunk& chunk = chunk_table(region)[at];
    if (chunk.file.load() != kNone) continue;
    chunk.sealed = 0;
    chunk.next = first;
    chunk.file = file;
    first = at;
    ++found;
  }
  region->hint = at;
  region->free.fetch_sub(found);
  return first;
}

void add_ready(Region* region, std::uint32_t count) {
  {
    const Short lock(region->pool_lock);
    if (lock.died()) region->free = count_free(region);
    region->ready.fetch_add(count);
    region->free.fetch_add(count);
  }
  wake_all(region->freed);
}

void release(Region* region, std::uint32_t chunk) {
  {
    const Short lock(region->pool_lock);
    if (lock.died()) region->free = count_free(region);
    chunk_table(region)[chunk].file = kNone;
    region->free.fetch_add(1);
    if (chunk < region->hint.load()) region->hint = chunk;  // its pages are mapped already
  }
  if (region->starved.load()) wake_all(region->freed);
}

void link(Region* region, std::uint32_t chunk) {
  Chunk& one = chunk_table(region)[chunk];
  std::atomic<std::uint32_t>& first = region->file[one.file.load()].first;
  one.next = first.load();
  first = chunk;
}

void unlink_chunk(Region* region, std::uint32_t chunk) {
  const Chunk& one = chunk_table(region)[chunk];
  std::atomic<std::uint32_t>& first = region->file[one.file.load()].first;
  if (first.load() == chunk) {
    first = one.next;
  } else {
    std::uint32_t at = first.load();
    while (chunk_table(region)[at].next != chunk) at = chunk_table(region)[at].next;
    chunk_table(region)[at].next = one.next;
  }
  release(region, chunk);
}

std::uint32_t chunk_for(Region* region, std::uint32_t file, std::uint64_t block) {
  std::uint32_t at = region->file[file].first.load();
  while (at != kNone && chunk_table(region)[at].block != block) at = chunk_table(region)[at].next;
  return at;
}

int write_whole(int fd, const char* from, std::size_t bytes, off_t at) {
  while (bytes) {
    const long wrote = ::syscall(SYS_pwrite64, fd, from, bytes, at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    from += wrote;
    bytes -= static_cast<std::size_t>(wrote);
    at += wrote;
  }
  return 0;
}

void restore_time(int fd, const File& file) {
  const timespec times[2] = {{0, UTIME_OMIT}, {file.wrote_seconds, file.wrote_nanoseconds}};
  ::syscall(SYS_utimensat, fd, nullptr, times, 0);  // refused if another user owns the file: then it is a little later
}

int open_entry(const File& file) {
  const int flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file.path, flags, 0));
  if (fd < 0) return -1;
  struct stat found{};
  if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_dev == file.dev.load() &&
      found.st_ino == file.ino.load()) {
    return fd;
  }
  close_raw(fd);
  return -1;
}

void give_back_space(int fd, File& file) {
  if (!file.reserved) return;
  // The lease is given only while no other process has the file open. One that opens it waits until we are done, so
  // nothing that it appends is cut off.
  if (::syscall(SYS_fcntl, fd, F_SETLEASE, F_WRLCK) != 0) return;
  struct stat found{};
  if (::fstat(fd, &found) == 0) ::syscall(SYS_ftruncate, fd, found.st_size);
  ::syscall(SYS_fcntl, fd, F_SETLEASE, F_UNLCK);
  file.reserved = 0;
  file.space_from = file.space_to = 0;
}

bool writer_gone(Region* region) {
  // The kernel marks a dead holder in the lock's first word, which therefore costs no system call to look at.
  const auto word = static_cast<std::uint32_t>(
      std::atomic_ref<int>(region->writer_lock.__data.__lock).load(std::memory_order_relaxed));
  return (word & FUTEX_OWNER_DIED) || region->through.load();
}

void end_capture(Region* region) {
  const std::uint64_t before = block_signals();
  const int locked = ::pthread_mutex_lock(&region->writer_lock);
  if (locked == EOWNERDEAD) ::pthread_mutex_consistent(&region->writer_lock);
  if (locked == 0 || locked == EOWNERDEAD) {
    write_everything(region, nullptr);
    ::pthread_mutex_unlock(&region->writer_lock);
  }
  restore_signals(before);
}

void write_everything(Region* region, const int* fds) {
  region->through = 1;
  bool sync_rest = false;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    Locked lock(region, at);
    File& file = region->file[at];
    if (file.state.load() == FileState::requested) {
      file.state = FileState::through;
      wake_all(file.changes);
    }
    if (file.first.load() == kNone && !file.sync_owed.load() && !(fds && file.reserved)) continue;
    const int fd = fds ? fds[at] : open_entry(file);
    while (file.first.load() != kNone) {
      const std::uint32_t chunk = file.first.load();
      const Chunk& one = chunk_table(region)[chunk];
      const auto offset = static_cast<off_t>(one.block * kChunk + one.begin);
      const int error =
          fd < 0 ? ENOENT : write_whole(fd, bytes_of(region, chunk) + one.begin, one.end - one.begin, offset);
      if (error && !file.error) file.error = error;
      region->written.fetch_add(one.end - one.begin);
      region->pieces.fetch_add(1);
      unlink_chunk(region, chunk);
      if (file.first.load() == kNone && fd >= 0) restore_time(fd, file);
    }
    if (fds && fd >= 0 && file.reserved) {
      give_back_space(fd, file);
      restore_time(fd, file);
    }
    file.urgent = 0;
    wake_all(file.changes);
    if (file.sync_owed.load()) {
      if (fd < 0) sync_rest = true;
      if (fd >= 0 && ::syscall(SYS_fsync, fd) != 0 && !file.error) file.error = errno;
      file.sync_owed = 0;
    }
    if (!fds && fd >= 0) close_raw(fd);
  }
  // A file that got another name since: its file system as a whole.
  if (sync_rest) {
    const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, region->directory, O_RDONLY | O_CLOEXEC, 0));
    if (fd >= 0) ::syscall(SYS_syncfs, fd);
    if (fd >= 0) close_raw(fd);
  }
}

}  // namespace ebb::capture
