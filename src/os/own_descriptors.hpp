#pragma once
// Descriptors that belong to this process alone: a forked child closes its copies first of all.
#include <functional>
#include <mutex>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ebb::os {

/// A file lock belongs to the open file, which a forked child shares: a child that outlives its parent would hold the
/// parent's lock. Locked descriptors are therefore opened and closed here.
///
/// Thread safety: every method may be called from any thread.
/// 1. mutex_ guards fds_ and process_. It is held across fork(), so no descriptor is opened during one.
/// 2. A child starts with fds_ empty: close() does nothing there, so a number that the child has reused is safe.
class OwnDescriptors {
 public:
  static OwnDescriptors& of_process();
  OwnDescriptors(const OwnDescriptors&) = delete;

  /// Registers the descriptor that `open` returns; -1: none, with errno as `open` left it. No fork() happens during the
  /// call.
  int open(const std::function<int()>& open);
  /// Calls `before`, then closes the descriptor. Returns false, and calls nothing, if it is not this process's.
  bool close(int fd, const std::function<void()>& before);

 private:
  OwnDescriptors();
  std::mutex mutex_;
  std::vector<int> fds_;
  pid_t process_;
};

/// One such descriptor. Move-only; moved-from is closed (fd -1). The destructor closes it. In a forked child, which may
/// have reused its number, it is closed as well.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  /// What `open` returns; without a descriptor if that is -1, with errno as `open` left it.
  explicit OwnDescriptor(const std::function<int()>& open) : fd_(OwnDescriptors::of_process().open(open)) {}
  OwnDescriptor(OwnDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}
  OwnDescriptor& operator=(OwnDescriptor&& other) noexcept {
    OwnDescriptor taken(std::move(other));
    std::swap(fd_, taken.fd_);
    std::swap(process_, taken.process_);
    return *this;
  }
  ~OwnDescriptor() { close(); }

  int fd() const noexcept { return process_ == ::getpid() ? fd_ : -1; }
  explicit operator bool() const noexcept { return fd() >= 0; }
  /// Calls `before` first, in the process that opened it alone.
  void close(const std::function<void()>& before = [] {}) {
    if (const int fd = std::exchange(fd_, -1); fd >= 0) OwnDescriptors::of_process().close(fd, before);
  }

 private:
  int fd_ = -1;
  pid_t process_ = ::getpid();  // which opened it
};

}  // namespace ebb::os
