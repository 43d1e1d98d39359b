#include "share/leases/lifeline.hpp"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys_result.hpp"

namespace ebb::share {

Result<std::pair<Lifeline, os::OwnDescriptor>> Lifeline::make() {
  Lifeline held;
  os::OwnDescriptor lenders([&] {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    held.fd_ = ends[1];
    return ends[0];
  });
  if (!lenders) return os::system_error("a pipe cannot be made", errno);
  return std::pair(std::move(held), std::move(lenders));
}

Lifeline::~Lifeline() {
  if (fd_ >= 0) ::close(fd_);
}

bool has_ended(const os::OwnDescriptor& lifeline) {
  struct stat found{};
  if (::fstat(lifeline.fd(), &found) != 0 || !S_ISFIFO(found.st_mode)) return true;
  pollfd end{lifeline.fd(), 0, 0};
  return ::poll(&end, 1, 0) > 0;
}

}  // namespace ebb::share
