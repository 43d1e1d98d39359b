#include "capture/writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

namespace ebb::capture {
namespace {

constexpr std::int64_t kLinger = 300;        // milliseconds that a chunk may wait for more bytes
constexpr std::uint32_t kGrowth = 16;        // chunks that get memory at a time
constexpr std::uint32_t kSpare = 64;         // chunks that are ready before they are needed
constexpr std::size_t kTogether = 8;         // chunks in one write
constexpr int kIdle = 200, kDirtyIdle = 20;  // milliseconds

std::uint32_t dirty(const Region* region) { return region->ready.load() - region->free.load(); }

// Whether space beyond the end can be given back: truncating to the present size does so on these file systems, and the
// lease for it is the owner's.
bool may_reserve(int fd) {
  struct statfs system{};
  struct stat found{};
  if (::fstatfs(fd, &system) != 0 || ::fstat(fd, &found) != 0 || found.st_uid != ::geteuid()) return false;
  constexpr std::uint32_t kExt4 = 0xEF53, kXfs = 0x58465342, kTmpfs = 0x01021994;
  const auto type = static_cast<std::uint32_t>(system.f_type);
  return type == kExt4 || type == kXfs || type == kTmpfs;
}

// One write of chunks that follow each other in the file.
int write_pieces(int fd, std::array<iovec, kTogether>& pieces, std::size_t count, off_t at) {
  std::size_t next = 0;
  while (next < count) {
    const ssize_t wrote = ::pwritev(fd, &pieces[next], static_cast<int>(count - next), at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    at += wrote;
    auto left = static_cast<std::size_t>(wrote);
    while (next < count && left >= pieces[next].iov_len) left -= pieces[next++].iov_len;
    if (next < count) {
      pieces[next].iov_base = static_cast<char*>(pieces[next].iov_base) + left;
      pieces[next].iov_len -= left;
    }
  }
  return 0;
}

}  // namespace

Writer::Writer(Region* region, platform::SharedFile& memory) : region_(region), memory_(memory), fds_(kFiles, -1) {}

void Writer::run() {
  ::signal(SIGXFSZ, SIG_IGN);  // then the write fails with EFBIG
  ::signal(SIGIO, SIG_IGN);    // another process opens a file while its space is given back
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  const int locked = ::pthread_mutex_lock(&region_->writer_lock);
  if (locked == EOWNERDEAD) ::pthread_mutex_consistent(&region_->writer_lock);
  region_->writer = ::getpid();
  wake_all(region_->freed);
  while (!region_->ending.load() && !region_->through.load() && ::getppid() == region_->owner) {
    const std::uint32_t seen = region_->wake.load();
    open_requested();
    grow();
    if (write_due()) continue;
    retire();
    region_->asleep = 1;
    wait_on(region_->wake, seen, dirty(region_) ? kDirtyIdle : kIdle);
    region_->asleep = 0;
  }
  open_requested();
  write_everything(region_, fds_.data());
  for (const int fd : fds_) {
    if (fd >= 0) ::close(fd);
  }
  ::pthread_mutex_unlock(&region_->writer_lock);
}

void Writer::open_requested() {
  for (std::uint32_t at = 0; at < region_->high.load(); ++at) {
    File& file = region_->file[at];
    if (file.state.load() != FileState::requested) continue;
    fds_[at] = open_entry(file);
    file.may_reserve = fds_[at] >= 0 && may_reserve(fds_[at]);
    file.state = fds_[at] >= 0 ? FileState::open : FileState::through;
    if (fds_[at] >= 0) region_->files.fetch_add(1);
    wake_all(file.changes);
  }
}

bool Writer::write_due() {
  bool wrote = false;
  for (std::uint32_t at = 0; at < region_->high.load(); ++at) {
    if (region_->file[at].first.load() == kNone) {
      region_->file[at].urgent = 0;
      continue;
    }
    const bool all = region_->file[at].urgent.load() || region_->starved.load();
    wrote |= write_some(at, all);
    open_requested();
  }
  if (region_->free.load() == region_->ready.load()) region_->starved = 0;  // one that waited may have been killed
  return wrote;
}

bool Writer::write_some(std::uint32_t at, bool all) {
  File& file = region_->file[at];
  std::vector<std::uint32_t> due;
  std::array<iovec, kTogether> pieces{};
  std::size_t count = 0;
  off_t offset = 0;
  {
    const Locked lock(region_, at);
    const std::int64_t old = milliseconds_now() - kLinger;
    const bool early = crowded(region_);
    for (std::uint32_t chunk = file.first.load(); chunk != kNone; chunk = chunk_table(region_)[chunk].next) {
      const Chunk& one = chunk_table(region_)[chunk];
      if (all || one.born <= old || (early && one.end == kChunk)) due.push_back(chunk);
    }
    if (due.empty()) return false;
    std::ranges::sort(due, {}, [&](std::uint32_t chunk) { return chunk_table(region_)[chunk].block; });
    for (const std::uint32_t chunk : due) {
      Chunk& one = chunk_table(region_)[chunk];
      const auto begin = static_cast<off_t>(one.block * kChunk + one.begin);
      const off_t end = offset + static_cast<off_t>(count ? (pieces[0].iov_len + (count - 1) * kChunk) : 0);
      if (count == kTogether || (count && (begin != end || begin % static_cast<off_t>(kChunk) != 0))) break;
      if (count == 0) offset = begin;
      pieces[count++] = {bytes_of(region_, chunk) + one.begin, one.end - one.begin};
      one.sealed = 1;
      if (one.end != kChunk) break;
    }
    due.resize(count);
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  const int error = write_pieces(fds_[at], pieces, count, offset);
  const Locked lock(region_, at);
  if (error && !file.error) file.error = error;
  for (const std::uint32_t chunk : due) unlink_chunk(region_, chunk);
  region_->written.fetch_add(bytes);
  region_->pieces.fetch_add(1);
  if (file.first.load() == kNone) {
    if (file.closed.load()) give_back_space(fds_[at], file);
    restore_time(fds_[at], file);
    file.urgent = 0;
  }
  wake_all(file.changes);
  return true;
}

// Closes files that the program closed: else it could run into the limit, and a program just written cannot be
// executed.
void Writer::retire() {
  const bool full = region_->live.load() > kFiles / 4 * 3;
  for (std::uint32_t at = 0; at < region_->high.load(); ++at) {
    File& file = region_->file[at];
    if (fds_[at] < 0 || !file.closed.load() || file.first.load() != kNone) continue;
    const Locked lock(region_, at);
    if (file.first.load() != kNone || !file.closed.load() || file.error || file.state.load() != FileState::open)
      continue;
    if (file.sync_owed.load()) {
      if (!full) continue;
      if (::fsync(fds_[at]) != 0) file.error = errno;
      file.sync_owed = 0;
      if (file.error) continue;
    }
    if (file.reserved) {
      give_back_space(fds_[at], file);
      if (file.reserved) continue;
      restore_time(fds_[at], file);
    }
    ::close(fds_[at]);
    fds_[at] = -1;
    forget(region_, at);
  }
}

void Writer::grow() {
  const std::uint32_t most = region_->most.load();
  while (region_->ready.load() < most && (region_->free.load() < kSpare || region_->starved.load())) {
    const std::uint32_t ready = region_->ready.load(), more = std::min(kGrowth, most - ready);
    const auto to = region_->pool_at + (std::uint64_t{ready} + more) * kChunk;
    const auto from = region_->pool_at + std::uint64_t{ready} * kChunk;
    if (!memory_.allocate({from, to - from})) {
      region_->most = ready;  // /dev/shm is full: the pool ends here
      break;
    }
    // Huge pages save each process hundreds of page faults a checkpoint. Where there are none, small ones do.
    ::madvise(bytes_of(region_, ready), more * kChunk, 25 /* MADV_COLLAPSE */);
    add_ready(region_, more);
    if (region_->free.load() >= kSpare) break;
  }
}

}  // namespace ebb::capture
