#pragma once
#include <optional>

#include "memory/arena.hpp"
#include "platform/node_lock.hpp"

namespace ebb::memory {

/// The turns of the processes of one user on a node. Where there is no place for a line (no directory), nobody is waited
/// for. The turn of a process that has ended is over, however it ended; one that stands still is waited for until stop.
class NodeTurn final : public PinTurn {
 public:
  explicit NodeTurn(platform::NodeLock line = platform::NodeLock("pin")) : line_(std::move(line)) {}
  bool take(std::stop_token stop) override;
  void give_back() noexcept override { place_.reset(); }

 private:
  const platform::NodeLock line_;
  std::optional<platform::NodeLock::Place> place_;
  bool none_ = false;  // there is no line
};

}  // namespace ebb::memory
