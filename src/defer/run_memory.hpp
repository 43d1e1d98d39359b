#pragma once
// What the writer of a run and the program's processes share: memory without a name, which ends with them.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace ebb::defer {

inline constexpr std::uint64_t kMagic = 0x3165646265626265;
inline constexpr std::size_t kLongestPath = 1024, kTold = 256;
inline constexpr std::uint32_t kStuck = 30;  // tenths of a second in which nothing was heard of the writer
inline constexpr const char* kVariable = "EBBTIDE_DEFER";  // the environment's; its value is a path of this memory

/// Thread safety: the writer fills in the first group before the program starts. Every other member is atomic.
struct RunMemory {
  std::uint64_t magic, device;  // the second: st_dev of the directory
  std::size_t length;           // of its path
  char directory[kLongestPath];

  robust_list entry;                              // the kernel's: when the writer dies, however, it marks `owner`
  std::atomic<std::uint32_t> owner;               // the writer's thread; 0: the run has ended
  std::atomic<std::uint32_t> full;                // 1: more is dirty than allowed, and deferred calls wait
  std::atomic<std::uint32_t> beat;                // changes all the time while the writer works
  std::atomic<std::uint32_t> calls;               // deferred so far; the writer sleeps on it
  std::atomic<std::uint32_t> asleep, everything;  // the second: sync() was deferred
  std::atomic<std::uint64_t> told[kTold];  // inodes that calls were deferred for; one that is lost costs speed only
};

/// Whether what is deferred now will be synced. Whoever defers asks after the data was written: the writer syncs
/// after it has set `owner` to 0.
inline bool writer_lives(const RunMemory& memory) {
  const std::uint32_t owner = memory.owner.load();
  return (owner & FUTEX_TID_MASK) != 0 && (owner & FUTEX_OWNER_DIED) == 0;
}

inline void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t value, long milliseconds) {
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

inline void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace ebb::defer
