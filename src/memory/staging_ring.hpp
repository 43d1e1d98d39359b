#pragma once
#include <cstddef>
#include <memory>

#include "memory/arena.hpp"

namespace ebb::memory {

/// The slots through which bytes pass between places that no link joins. Only memory: which slot is whose, the planner
/// says (it counts offsets from the first byte; slots of one direction, then those of the other). Move-only.
class StagingRing {
 public:
  StagingRing() = default;
  /// `slots` slots of `slot_bytes` (a multiple of 4096) for each of the two directions. Error out_of_memory.
  static Result<StagingRing> create(platform::Device& device, std::size_t slot_bytes, std::size_t slots);

  std::byte* data() const noexcept { return memory_ ? memory_->data() : nullptr; }
  std::size_t size() const noexcept { return memory_ ? memory_->size() : 0; }

 private:
  explicit StagingRing(std::unique_ptr<Arena> memory) : memory_(std::move(memory)) {}
  std::unique_ptr<Arena> memory_;
};

}  // namespace ebb::memory
