#include "os/watch_wait.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <unistd.h>

#include "os/sys_result.hpp"

namespace ebb::os {

Result<bool> WaitLimit::wait(int fd, int bell) const {
  std::array<pollfd, 2> all{{{fd, POLLIN, 0}, {bell, POLLIN, 0}}};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now()).count();
    const int ready = ::poll(all.data(), all.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return system_error("waiting for writes failed", errno);
    if (ready == 0 && left > 1'000'000) continue;
    if (all[1].revents) {
      std::uint64_t times = 0;
      static_cast<void>(::read(bell, &times, sizeof times) == sizeof times);
    }
    // A userfaultfd or pipe that is broken would be ready for ever.
    if (all[0].revents & (POLLERR | POLLNVAL)) return system_error("waiting for writes failed", EBADF);
    return ready > 0;
  }
}

void ring_bell(int bell) noexcept {
  const std::uint64_t once = 1;
  static_cast<void>(::write(bell, &once, sizeof once) == sizeof once);
}

}  // namespace ebb::os
