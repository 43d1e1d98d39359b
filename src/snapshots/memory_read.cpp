#include "snapshots/memory_read.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/uio.h>
#include <unistd.h>

#include "os/memory_guard.hpp"

namespace ebb::snapshots {

bool read_memory(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  while (bytes > 0) {
    const iovec here{to, bytes};
    const iovec there{const_cast<std::byte*>(from), bytes};
    const ssize_t got = ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
      return os::try_copy(to, from, bytes);
    }
    if (got <= 0) return false;
    to += got;
    from += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace ebb::snapshots
