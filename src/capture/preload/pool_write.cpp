#include "capture/preload/pool_write.hpp"

#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ebb::capture {
namespace {

// The part of [from, to) that is in a block, from its beginning.
struct Part {
  std::uint32_t begin, end;
};
Part part_of(std::uint64_t block, off_t from, off_t to) {
  const auto first = static_cast<off_t>(block * kChunk);
  return {static_cast<std::uint32_t>(std::max(from, first) - first),
          static_cast<std::uint32_t>(std::min(to, first + static_cast<off_t>(kChunk)) - first)};
}

// Allocates disk space beyond the end of a growing file too, as much as it has, so that few writes pay for this.
// Whether [from, to) has it now; if not, the caller allocates exactly what it needs. The caller has the file's lock.
bool reserve_space(File& file, int fd, const struct stat& found, off_t from, off_t to) {
  constexpr off_t kMost = off_t{8} << 20;
  if (found.st_size < file.known_size) file.space_from = file.space_to = 0;  // truncated outside the run
  if (from >= file.space_from.load() && to <= file.space_to.load()) return true;
  if (!file.may_reserve || found.st_size == 0 || to <= found.st_size || from < found.st_size) return false;
  struct statfs system{};
  const off_t more = std::min(to, kMost);
  if (::fstatfs(fd, &system) != 0 || static_cast<off_t>(system.f_bavail) / 64 < more / system.f_bsize) return false;
  file.reserved = 1;
  if (::syscall(SYS_fallocate, fd, FALLOC_FL_KEEP_SIZE, from, to - from + more) != 0) return false;
  if (from > file.space_to.load() || from < file.space_from.load()) file.space_from = from;
  file.space_to = to + more;
  return true;
}

}  // namespace

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
  // Then disk space, where the file may have none; this may lengthen it too.
  const bool has_space = reserve_space(file, fd, found, from, to);
  const std::uint32_t unit =
      found.st_blksize >= 512 && found.st_blksize <= 4096 ? static_cast<std::uint32_t>(found.st_blksize) : 4096;
  const auto round_up = [&](std::uint32_t value) { return (value + unit - 1) / unit * unit; };
  off_t size = found.st_size;
  // An allocation that fails may have lengthened the file: its size stays what was acknowledged.
  const auto no_space = [&] {
    while (fresh != kNone) {
      const std::uint32_t next = chunk_table(region)[fresh].next;
      release(region, fresh);
      fresh = next;
    }
    struct stat now{};
    if (::fstat(fd, &now) == 0 && now.st_size > found.st_size) {
      ::syscall(SYS_ftruncate, fd, found.st_size);
      file.space_from = file.space_to = 0;  // what was allocated ahead is gone with it
    }
    return Stored::no_space;
  };
  next_fresh = fresh;
  for (std::uint64_t block = first; block <= last; ++block) {
    std::uint32_t known = chunk_for(region, at, block);
    if (known == kNone) {
      known = next_fresh;
      next_fresh = chunk_table(region)[known].next;
    }
    const Chunk& chunk = chunk_table(region)[known];
    const Part part = part_of(block, from, to);
    if (has_space || (part.begin >= chunk.begin && part.end <= chunk.allocated)) continue;
    const auto offset = static_cast<off_t>(block * kChunk);
    if (::syscall(SYS_fallocate, fd, 0, offset + part.begin, static_cast<off_t>(part.end - part.begin)) != 0) {
      return no_space();
    }
    size = std::max(size, offset + part.end);
  }
  if (to > size && ::syscall(SYS_ftruncate, fd, to) != 0) {
    return no_space();
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
  file.known_size = std::max(found.st_size, to);
  const std::uint32_t dirty = region->ready.load() - region->free.load();
  if (missing && (dirty <= missing || crowded(region))) wake_writer(region);
  return Stored::yes;
}

}  // namespace ebb::capture
