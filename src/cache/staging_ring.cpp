#include "cache/staging_ring.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "os/files.hpp"

namespace ebb::cache {

Result<StagingRing> StagingRing::create(device::Device& device, std::size_t slot_bytes, std::size_t slots, bool direct,
                                        MemoryOptions options, planner::Time pin_deadline, bool ahead) {
  if (slot_bytes % os::kBlock) throw std::logic_error("a ring's slots are multiples of 4096 bytes");
  if (slots && slot_bytes > SIZE_MAX / 2 / slots) {
    return Error{Errc::out_of_memory, "a staging ring of " + std::to_string(slots) + " slots of " +
                                          std::to_string(slot_bytes) + " bytes fits no memory"};
  }
  const std::size_t bytes = 2 * slot_bytes * slots;
  planner::ProvisionSpec spec;
  spec.piece = spec.largest_piece = slot_bytes;
  spec.touchers = 1;
  spec.lead = planner::kAllAhead;
  spec.pin_deadline = pin_deadline;
  options.whole = true;
  // Ordinary memory is not registered, so touching it blocks none of the program's work.
  auto memory = !direct && !ahead && device.host_memory() && bytes > 0 ? untouched_host_memory(bytes)
                : direct || device.host_memory() || bytes == 0
                    ? direct_host_memory(device, bytes)
                    : incremental_host_memory(device, bytes, std::move(options), spec);
  if (!memory) return memory.error();
  return StagingRing(std::move(*memory), slot_bytes, slots);
}

// Slots of the two directions alternate, so that neither waits for all of the other's.
std::size_t StagingRing::place_of(std::size_t offset) const {
  const std::size_t slot = offset / slot_bytes_, up = slot / slots_;
  return (2 * (slot % slots_) + up) * slot_bytes_ + offset % slot_bytes_;
}

std::byte* StagingRing::at(std::size_t offset) const { return memory_->data() + place_of(offset); }

std::size_t StagingRing::end_of(std::size_t offset, std::size_t bytes) const {
  if (offset % slot_bytes_ + bytes > slot_bytes_)
    throw std::logic_error("a transfer through the ring must be within one slot");
  return place_of(offset) + bytes;
}

void StagingRing::stop() {
  if (memory_) memory_->stop();
}

}  // namespace ebb::cache
