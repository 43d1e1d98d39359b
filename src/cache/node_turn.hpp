#pragma once
#include <optional>

#include "cache/tier_memory.hpp"
#include "os/pin_queue.hpp"

namespace ebb::memory {

/// The turns of the processes of one user on a node. Where there is no place for a line (no directory, no descriptor
/// left), nobody is waited for that time. The turn of a process that has ended is over, however it ended; one that
/// stands still is waited for until stop.
class NodeTurn final : public PinTurn {
 public:
  explicit NodeTurn(platform::PinQueue line = platform::PinQueue("pin")) : line_(std::move(line)) {}
  bool take(std::stop_token stop) override;
  std::string trouble() const override { return none_; }
  void give_back() noexcept override { place_.reset(); }

 private:
  const platform::PinQueue line_;
  std::optional<platform::PinQueue::Ticket> place_;
  std::string none_;  // why there is no line
};

}  // namespace ebb::memory
