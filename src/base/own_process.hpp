#pragma once
#include <sys/types.h>
#include <unistd.h>

namespace ebb::base {

/// A deleter, for std::shared_ptr and std::unique_ptr, that deletes only in the process that made it. A forked child
/// never deletes the object: its threads do not exist there, a missing thread may hold a lock, and a GPU's driver does
/// not survive the fork. The memory is the child's own copy and goes with the child.
///
/// Thread safety: constant.
struct InOwnProcess {
  const pid_t process = ::getpid();

  template <class T>
  void operator()(T* object) const {
    if (::getpid() == process) delete object;
  }
};

}  // namespace ebb::base
