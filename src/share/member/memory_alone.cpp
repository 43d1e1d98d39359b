#include "share/member/memory_alone.hpp"

#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/start_thread.hpp"

namespace ebb::share {

MemoryAlone::MemoryAlone(std::shared_ptr<PoolMember> member)
    : PoolMemory(member), member_(std::move(member)), bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }) {
  thread_ = base::thread([this] { run(); });
}

MemoryAlone::~MemoryAlone() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  close({Errc::closed, "the store is closed"});
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
  thread_.join();
}

bool MemoryAlone::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void MemoryAlone::run() {
  while (!stopping()) {
    const auto message = member_->receive();
    if (!message) {
      auto joined = member_->rejoin();
      while (!joined && joined.error().code == Errc::timed_out && !stopping()) joined = member_->rejoin();
      if (!joined)
        return close({joined.error().code, "the node's pool cannot be used any more: " + joined.error().message});
      ask_again();
    } else if (*message) {
      hear(**message);
    } else {
      member_->wait(bell_.fd(), std::chrono::milliseconds{200});
    }
  }
}

Result<std::unique_ptr<NodeMemory>> open_node_memory(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                     const PoolOptions& options) {
  NodeStorageOptions all;
  all.pool = options;
  auto member = PoolMember::join(seams, files, clock, all);
  if (!member) return member.error();
  return std::unique_ptr<NodeMemory>(std::make_unique<MemoryAlone>(std::move(*member)));
}

}  // namespace ebb::share
