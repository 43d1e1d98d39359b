#pragma once
// Descriptors that belong to this process alone: a child of fork() closes its copies before anything else.
#include <functional>
#include <mutex>
#include <sys/types.h>
#include <vector>

namespace ebb::platform {

/// A lock on a file belongs to the open file, which a child of fork() shares: a child that lives on would hold the lock
/// of a parent that has ended. Descriptors that are locked are therefore opened and closed here.
///
/// Thread safety: every method may be called from any thread.
/// 1. mutex_ guards fds_ and process_. It is held from before a fork() to after it: no descriptor is opened meanwhile.
/// 2. A child starts with fds_ empty: close() does nothing there, and a number that it has given to another file is
/// safe.
class OwnDescriptors {
 public:
  static OwnDescriptors& of_process();
  OwnDescriptors(const OwnDescriptors&) = delete;

  /// Takes the descriptor that `open` returns; -1: it has none, and errno is as `open` left it. No fork() happens
  /// meanwhile.
  int open(const std::function<int()>& open);
  /// Calls `before`, then closes the descriptor. False, and nothing is called: it is not this process's.
  bool close(int fd, const std::function<void()>& before);

 private:
  OwnDescriptors();
  std::mutex mutex_;
  std::vector<int> fds_;
  pid_t process_;
};

}  // namespace ebb::platform
