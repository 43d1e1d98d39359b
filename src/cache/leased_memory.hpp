#pragma once
// Memory of a tier that another process provides for a while, and takes back.
#include <memory>

#include "cache/tier_memory.hpp"

namespace ebb::cache {

/// Nothing, or a lease of at most `most` bytes: one after the other. Of host memory, or of a device's, which `pinned`
/// says not: its pages are there, and a copy needs no registration.
///
/// Thread safety: begin() and end() are called by one thread at a time, while no one uses the memory; everything else
/// as for TierMemory.
class LeasedMemory final : public TierMemory {
 public:
  LeasedMemory(device::Device& device, std::size_t most, bool pinned = true)
      : TierMemory("lent", most), device_(device), pinned_(pinned) {}
  ~LeasedMemory() override { end(); }

  /// All of its bytes are present and registered with the device before this returns. Error: they cannot be, and there
  /// is nothing.
  Result<void> begin(std::shared_ptr<std::byte> memory, std::size_t bytes);
  /// Unregisters and lets go of it.
  void end() noexcept;
  MemoryReport report() const override;

 private:
  device::Device& device_;
  const bool pinned_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace ebb::cache
