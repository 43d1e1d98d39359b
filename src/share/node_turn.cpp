#include "share/node_turn.hpp"

#include <chrono>
#include <thread>

namespace ebb::share {
Result<void> NodeTurn::wait(os::Clock& clock, std::int64_t limit_ns) {
  if (auto entered = queue_.enter(); !entered) return entered;
  const std::int64_t until = clock.now() + limit_ns;
  while (!queue_.poll()) {
    if (clock.now() > until) {
      return Error{Errc::timed_out,
                   "the queue of this node's processes does not move: one of them holds it, and is perhaps stopped"};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return {};
}

}  // namespace ebb::share
