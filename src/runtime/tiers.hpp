#pragma once
#include <memory>

#include "memory/device_arena.hpp"
#include "memory/host_arena.hpp"
#include "memory/staging_ring.hpp"
#include "platform/device.hpp"
#include "policy/types.hpp"

namespace ebb::runtime {

/// The memory of every tier. Shared: what was lent out (reservations, loans) keeps it alive after the store has closed.
/// The pointers that it gives never change.
class Tiers {
 public:
  /// Error out_of_memory naming the tier.
  static Result<std::shared_ptr<Tiers>> create(std::shared_ptr<platform::Device> device,
                                               const policy::Machine& machine);

  /// Where a place of memory lies; for a file tier or the application a std::logic_error.
  std::byte* at(const policy::Place& place) const;
  platform::Device& device() const { return *device_; }

 private:
  Tiers() = default;
  std::shared_ptr<platform::Device> device_;  // outlives its arenas
  std::vector<memory::DeviceArena> device_arenas_;
  std::vector<memory::HostArena> host_arenas_;
  memory::StagingRing ring_;
  std::vector<std::byte*> base_;              // by tier; null: a file
};

}  // namespace ebb::runtime
