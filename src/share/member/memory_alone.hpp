#pragma once
// The memory of a pool without a store: hears from the agent.
#include <memory>
#include <mutex>
#include <thread>

#include "os/own_descriptors.hpp"
#include "share/member/pool_memory.hpp"

namespace ebb::share {

/// Thread safety: as PoolMemory. Its thread alone receives messages, and finds the next agent; the destructor ends it.
class MemoryAlone final : public PoolMemory {
 public:
  explicit MemoryAlone(std::shared_ptr<PoolMember> member);
  ~MemoryAlone() override;

 private:
  void run();
  bool stopping();

  const std::shared_ptr<PoolMember> member_;
  const os::OwnDescriptor bell_;  // an eventfd
  std::mutex mutex_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::share
