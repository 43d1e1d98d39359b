#include "memory/staging_ring.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "platform/files.hpp"

namespace ebb::memory {

Result<StagingRing> StagingRing::create(platform::Device& device, std::size_t slot_bytes, std::size_t slots) {
  if (slot_bytes % platform::kBlock) throw std::logic_error("a ring's slots are multiples of 4096 bytes");
  if (slots && slot_bytes > SIZE_MAX / 2 / slots) {
    return Error{Errc::out_of_memory, "a staging ring of " + std::to_string(slots) + " slots of " +
                                          std::to_string(slot_bytes) + " bytes fits no memory"};
  }
  auto memory = Arena::host(device, 2 * slot_bytes * slots, HostStrategy::direct);
  if (!memory) return memory.error();
  return StagingRing(std::move(*memory));
}

}  // namespace ebb::memory
