#pragma once
#include <sys/types.h>
#include <unistd.h>

namespace ebb::runtime {

/// Deletes in the process that made it, for std::shared_ptr and std::unique_ptr. In a forked child what it deletes is
/// left alone for ever: its threads do not exist there, a lock may be held by one of them, and a GPU's driver does not
/// survive the fork. The memory is the child's own copy and goes with it.
///
/// Thread safety: constant.
struct InOwnProcess {
  const pid_t process = ::getpid();

  template <class T>
  void operator()(T* object) const {
    if (::getpid() == process) delete object;
  }
};

}  // namespace ebb::runtime
