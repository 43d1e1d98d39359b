#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "os/files.hpp"

namespace ebb::storage {

/// Allocates a file's disk space in steps, a little ahead of its use: a short history leaves the disk to others, and
/// writes find their space already allocated. (On ext4, preallocated space is written as fast as space written before;
/// allocating 50 GiB at once blocked for 0.15 s, a step for a few ms.)
///
/// Thread safety: every method may be called from any thread.
/// 1. allocated_ only grows; [0, allocated_) has disk space, unless state() says otherwise.
/// 2. The thread ends at the end of the file or at the first failure; from then on writes allocate space, or fail.
class Preallocator {
 public:
  static constexpr std::uint64_t kStep = 1ull << 30;

  /// Allocates the first step before it returns, the others in the background. `files` and `file` must outlive it.
  Preallocator(os::Files& files, const os::File& file, std::uint64_t capacity, std::uint64_t step = kStep);
  ~Preallocator();

  /// Bytes up to `end` are in use: allocates up to a step beyond them.
  void use_up_to(std::uint64_t end);
  /// The errno of the first failure, or 0.
  int refusal() const;
  /// For a person: "preallocated in steps", or "sparse: fallocate answered EOPNOTSUPP (...)".
  std::string state() const;
  std::uint64_t allocated() const;
  /// Waits until the space that use_up_to() asked for is allocated, or has failed.
  void settle();

 private:
  std::uint64_t wanted_locked() const;
  void allocate_step(std::unique_lock<std::mutex>& lock);
  void work();

  os::Files& files_;
  const os::File& file_;
  const std::uint64_t capacity_, step_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t used_end_ = 0, allocated_ = 0;
  int refusal_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::storage
