#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "os/files.hpp"

namespace ebb::storage {

/// Takes a file's disk space in steps, a little ahead of its use: a history that stays small leaves the disk to others,
/// and writes find space that is theirs already. (On ext4, space taken but never written is written as fast as space
/// written before; taking 50 GiB at once stood for 0.15 s, a step for a few ms.)
///
/// Thread safety: every method may be called from any thread.
/// 1. allocated_ only grows; [0, allocated_) has its disk space, unless state() says otherwise.
/// 2. The thread ends at the file's end, and at the first refusal: from then on writes take space themselves, or fail.
class Preallocator {
 public:
  static constexpr std::uint64_t kStep = 1ull << 30;

  /// Takes the first step before it returns, the others in the background. `files` and `file` must outlive it.
  Preallocator(platform::Files& files, const platform::File& file, std::uint64_t capacity, std::uint64_t step = kStep);
  ~Preallocator();

  /// Says that bytes up to `end` are in use: space is taken up to a step behind them.
  void use_up_to(std::uint64_t end);
  /// How the first refusal, if any, was answered: 0 or an errno.
  int refusal() const;
  /// For a person: "preallocated in steps", or "sparse: fallocate answered EOPNOTSUPP (...)".
  std::string state() const;
  std::uint64_t allocated() const;
  /// Waits until nothing is left to do for what was reached.
  void settle();

 private:
  std::uint64_t wanted_locked() const;
  void allocate_step(std::unique_lock<std::mutex>& lock);
  void work();

  platform::Files& files_;
  const platform::File& file_;
  const std::uint64_t capacity_, step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t used_end_ = 0, allocated_ = 0;
  int refusal_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::storage
