#pragma once
// What is in a run's file of shared memory: the captured files, and the chunks with bytes that they do not have yet.
// The processes of the program, the writer and `ebbtide run` map it. See docs/capture.md.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <sys/types.h>

namespace ebb::capture {

inline constexpr std::uint64_t kMagic = 0x4542424341503031;  // "EBBCAP01"
inline constexpr std::size_t kChunk = std::size_t{1} << 20;
inline constexpr std::size_t kHuge = std::size_t{2} << 20;  // the pool begins at a huge page
inline constexpr std::size_t kLeastPool = 4 * kChunk;
inline constexpr std::uint32_t kFiles = 4096;
inline constexpr std::size_t kPath = 480;
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// Bytes of one aligned block of a file, as long as a chunk. [begin, end) of the block is in the pool; its chunk
/// follows from the place of this description. Guarded by its file's lock while it belongs to one, else by the pool's.
struct Chunk {
  std::atomic<std::uint32_t> file;  // kNone: free
  std::uint32_t next;               // the file's next one
  std::uint32_t begin, end;
  std::uint32_t allocated;  // the file has disk space from `begin` to here
  std::uint32_t sealed;     // the writer writes it, so its bytes no longer change
  std::uint64_t block;
  std::int64_t born;  // milliseconds
};

enum class FileState : std::uint32_t {
  free,       // or was: the search for another key goes on behind it
  requested,  // a process asks the writer to open it
  open,       // captured
  through,    // not captured: every call is the real one
};

/// A file that the run knows. `dev`, `ino` and `state` are read without the lock, and are looked at again with it.
struct File {
  std::atomic<std::uint64_t> dev, ino;
  std::atomic<FileState> state;
  std::atomic<std::uint32_t> used;     // this place ever had a key
  std::atomic<std::uint32_t> first;    // of its chunks, unordered; kNone: it has none
  std::atomic<std::uint32_t> urgent;   // a process waits until all is written
  std::atomic<std::uint32_t> changes;  // a futex: grows whenever chunks were written, or the state changed
  std::atomic<std::uint32_t> closed;   // since its last write
  std::atomic<std::uint32_t> sync_owed;
  std::uint32_t stale_path;  // a call changed names: the path is looked up again before the next write
  std::int32_t error;        // of a write that was acknowledged; 0: none
  std::int64_t wrote_seconds, wrote_nanoseconds;   // when write() was last acknowledged
  std::uint32_t may_reserve;                       // disk space may be allocated beyond the end, and is given back
  std::uint32_t reserved;                          // this was done
  std::atomic<std::int64_t> space_from, space_to;  // the file has disk space there
  std::int64_t known_size;                         // when that was known
  pthread_mutex_t lock;
  char path[kPath];
};

struct Region {
  std::uint64_t magic;
  std::uint64_t bytes;  // of the whole file, with all its chunks
  std::uint64_t pool_at;
  std::uint32_t chunks;             // of the budget
  std::atomic<std::uint32_t> most;  // of them that there will be: /dev/shm may be too small
  std::uint32_t defer;              // fsync is done at the end
  pid_t owner;                      // `ebbtide run`
  std::atomic<pid_t> writer;
  pthread_mutex_t writer_lock;         // the writer's as long as it lives
  pthread_mutex_t table_lock;          // of the keys
  pthread_mutex_t pool_lock;           // of free chunks
  std::atomic<std::uint32_t> ready;    // chunks that have memory
  std::atomic<std::uint32_t> free;     // of these
  std::atomic<std::uint32_t> hint;     // where the next free one may be
  std::atomic<std::uint32_t> starved;  // processes that wait for free chunks
  std::atomic<std::uint32_t> freed;    // a futex: grows with each freed chunk
  std::atomic<std::uint32_t> wake;     // a futex: grows when the writer has something to do
  std::atomic<std::uint32_t> asleep;   // the writer
  std::atomic<std::uint32_t> through;  // capture has ended: all files are written, and calls are the real ones
  std::atomic<std::uint32_t> ending;   // the program has ended
  std::atomic<std::uint32_t> high;     // no file is at or behind this place
  std::atomic<std::uint32_t> live;     // files with a key
  std::atomic<std::uint64_t> files, written, pieces, deferred;  // counters for the closing line
  char directory[kPath];
  File file[kFiles];
};

/// The chunks' descriptions begin behind the region.
inline std::size_t chunks_at() { return (sizeof(Region) + 63) / 64 * 64; }
inline std::uint64_t pool_offset(std::uint32_t chunks) {
  return (chunks_at() + chunks * sizeof(Chunk) + kHuge - 1) / kHuge * kHuge;
}
inline Chunk* chunk_table(Region* region) {
  return reinterpret_cast<Chunk*>(reinterpret_cast<char*>(region) + chunks_at());
}
inline char* bytes_of(Region* region, std::uint32_t chunk) {
  return reinterpret_cast<char*>(region) + region->pool_at + chunk * kChunk;
}

}  // namespace ebb::capture
