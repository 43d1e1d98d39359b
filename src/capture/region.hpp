#pragma once
// What every process does with a run's shared memory. The preloaded library has these functions too, so they use the C
// library alone: no allocation, no exceptions.
#include <cstdint>
#include <ctime>
#include <sys/stat.h>
#include <sys/types.h>

#include "capture/layout.hpp"

namespace ebb::capture {

/// Maps a run's file, or returns null. Forked children inherit the mapping.
Region* map_region(const char* path);
/// Fills a mapped, zeroed file; `ready` chunks have memory.
void lay_out(Region* region, const char* directory, std::uint32_t chunks, std::uint32_t ready, bool defer);

/// Waits until `word` is no longer `seen`, at most so long; may return early.
void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, int milliseconds);
void wake_all(std::atomic<std::uint32_t>& word);
void wake_writer(Region* region);
std::int64_t milliseconds_now();

/// Holds a lock of the region, with all signals blocked: a handler may call write() itself. Whoever finds that the last
/// holder died puts right what that left half done.
class Locked {
 public:
  /// Locks one file's entry.
  Locked(Region* region, std::uint32_t file);
  ~Locked();
  Locked(const Locked&) = delete;
  void unlock();
  void lock();

 private:
  Region* const region_;
  const std::uint32_t file_;
  std::uint64_t signals_ = 0;
  bool held_ = false;
};

/// The place of a file; kNone: it is unknown. Without a lock: compare the key again under the file's.
std::uint32_t find(Region* region, std::uint64_t dev, std::uint64_t ino);
/// The same, with a new entry in this state if there was none. kNone: the table is full.
std::uint32_t find_or_add(Region* region, std::uint64_t dev, std::uint64_t ino, FileState state, const char* path);
/// The entry is free again. The caller has the file's lock, and the file has no chunk.
void forget(Region* region, std::uint32_t file);
inline bool has_key(const File& file, std::uint64_t dev, std::uint64_t ino) {
  return file.dev.load() == dev && file.ino.load() == ino && file.state.load() != FileState::free;
}

/// Reserves `count` chunks for a file, all or none: the first, from which `next` leads to the others. kNone: there are
/// not as many. The caller has the file's lock.
std::uint32_t reserve(Region* region, std::uint32_t file, std::uint32_t count);
/// Much of the pool is used: the writer begins before chunks are old.
inline bool crowded(const Region* region) {
  return region->ready.load() - region->free.load() > region->most.load() / 2;
}
/// So many more chunks have memory.
void add_ready(Region* region, std::uint32_t count);
/// Frees a chunk that no list has.
void release(Region* region, std::uint32_t chunk);
/// Adds a reserved chunk to its file's list.
void link(Region* region, std::uint32_t chunk);
/// Removes it from the list and frees it. The caller has the file's lock.
void unlink_chunk(Region* region, std::uint32_t chunk);
std::uint32_t chunk_for(Region* region, std::uint32_t file, std::uint64_t block);

/// Writes these bytes: 0, or the errno.
int write_whole(int fd, const char* from, std::size_t bytes, off_t at);
/// The last piece of a file is written: its time of modification is that of the last write() again.
void restore_time(int fd, const File& file);
/// Opens an entry's file for writing, if its path still names it; -1: no.
int open_entry(const File& file);

/// Gives back the disk space beyond the file's end, unless another process has the file open. The caller has the file's
/// lock.
void give_back_space(int fd, File& file);

/// Whether the writer died, or capture has ended.
bool writer_gone(Region* region);
/// After the writer's death: writes all that is in the pool and ends capture. Whoever notices calls it; a second caller
/// waits for the first. While the writer ends capture itself, this waits for it.
void end_capture(Region* region);
/// The part of it that whoever has the writer's lock does. `fds`: the files as the writer has them open, or null.
void write_everything(Region* region, const int* fds);

}  // namespace ebb::capture
