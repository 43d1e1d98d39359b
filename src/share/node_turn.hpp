#pragma once
// The queue of the node's processes: who holds it may start an agent, finish a dead job's pool, or remove a pool.
#include "os/pin_queue.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// Thread safety: one thread.
class NodeTurn {
 public:
  explicit NodeTurn(const NodeSeams& seams) : queue_("node", seams.queue_directories) {}
  /// Waits until this process is called, which lasts until the destructor. Errors: timed_out, unsupported (there is no
  /// queue).
  Result<void> wait(os::Clock& clock, std::int64_t limit_ns = 60'000'000'000);

 private:
  os::NodePinQueue queue_;  // its destructor leaves
};

}  // namespace ebb::share
