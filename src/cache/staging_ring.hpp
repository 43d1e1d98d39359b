#pragma once
#include <cstddef>
#include <memory>

#include "cache/tier_memory.hpp"

namespace ebb::cache {

/// The slots through which bytes pass between places that no link joins. Only memory: which slot is whose, the planner
/// says (it counts offsets from the first byte; slots of one direction, then those of the other). The slots come one
/// after another, each touched and registered as a whole, the first of each direction first. Move-only.
///
/// Thread safety: as TierMemory's.
class StagingRing {
 public:
  StagingRing() = default;
  /// `slots` slots of `slot_bytes` (a multiple of 4096) for each of the two directions; `direct`: all of them before it
  /// returns; not `ahead`: ordinary memory that is touched only as it is used. Error out_of_memory.
  static Result<StagingRing> create(device::Device& device, std::size_t slot_bytes, std::size_t slots, bool direct,
                                    MemoryOptions options = {},
                                    planner::Time pin_deadline = planner::ProvisionSpec{}.pin_deadline,
                                    bool ahead = true);

  std::size_t size() const noexcept { return memory_ ? memory_->size() : 0; }
  /// The address of the byte at the planner's `offset`.
  std::byte* at(std::size_t offset) const;
  /// The memory, and where `bytes` from `offset` on end in it: they lie in one slot (else a std::logic_error).
  TierMemory& memory() const { return *memory_; }
  std::size_t end_of(std::size_t offset, std::size_t bytes) const;
  void stop();

 private:
  StagingRing(std::unique_ptr<TierMemory> memory, std::size_t slot_bytes, std::size_t slots)
      : memory_(std::move(memory)), slot_bytes_(slot_bytes), slots_(slots) {}
  std::size_t place_of(std::size_t offset) const;

  std::unique_ptr<TierMemory> memory_;
  std::size_t slot_bytes_ = 0, slots_ = 0;
};

}  // namespace ebb::cache
