#pragma once
#include <condition_variable>
#include <mutex>
#include <set>

#include "tests/doubles/forward_files.hpp"

namespace ebb::doubles {

/// Files of which those in one directory can fail, or stop answering, while all others go on: a file system that is
/// full, broken, or gone. Writes, syncs and reads are what fails; transfers through a ring pass unseen.
///
/// Thread safety: every method may be called from any thread.
class TroubledDirectory final : public ForwardFiles<TroubledDirectory> {
 public:
  TroubledDirectory(os::Files& inner, std::filesystem::path directory)
      : ForwardFiles(inner), directory_(std::move(directory)) {}

  /// Writes and syncs fail with `error` from now on; 0: none does.
  void fail_writes(int error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  /// Writes and syncs do not return until release().
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    changed_.notify_all();
  }
  /// Waits until a call is held.
  void await_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  std::uint64_t writes() const {
    const std::lock_guard lock(mutex_);
    return writes_;
  }

  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }

  template <class Whole>
  os::SysResult around(const FileRecord& call, Whole&& whole) noexcept {
    const bool puts = call.call == FileCall::write || call.call == FileCall::sync;
    if (puts) {
      std::unique_lock lock(mutex_);
      if (open_.contains(call.fd)) {
        ++writes_;
        if (held_) {
          ++waiting_;
          changed_.notify_all();
          changed_.wait(lock, [&] { return !held_; });
          --waiting_;
        }
        if (error_ != 0) return os::SysResult::failed(error_);
      }
    }
    if (call.call == FileCall::close) {
      const std::lock_guard lock(mutex_);
      open_.erase(call.fd);
    }
    const os::SysResult result = whole();
    if (call.call == FileCall::open && result && call.path.parent_path() == directory_) {
      const std::lock_guard lock(mutex_);
      open_.insert(static_cast<int>(result.value));
    }
    return result;
  }

 private:
  const std::filesystem::path directory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> open_;  // descriptors of files in the directory
  int error_ = 0, waiting_ = 0;
  bool held_ = false;
  std::uint64_t writes_ = 0;
};

}  // namespace ebb::doubles
