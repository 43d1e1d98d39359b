#include "runtime/tiers.hpp"

#include <stdexcept>

#include "ebbtide/config.hpp"

namespace ebb::runtime {
namespace {

Error for_tier(const policy::TierSpec& tier, const Error& error) {
  return {error.code,
          "the " + tier.name + " cache of " + format_bytes(tier.capacity) + " cannot be had: " + error.message};
}

}  // namespace

Result<std::shared_ptr<Tiers>> Tiers::create(std::shared_ptr<platform::Device> device, const policy::Machine& machine) {
  std::shared_ptr<Tiers> tiers(new Tiers());
  tiers->device_ = std::move(device);
  bool files = false;
  for (const policy::TierSpec& tier : machine.tiers) {
    std::byte* base = nullptr;
    if (tier.medium == policy::Medium::device) {
      auto arena = memory::DeviceArena::create(*tiers->device_, tier.capacity);
      if (!arena) return for_tier(tier, arena.error());
      base = tiers->device_arenas_.emplace_back(std::move(*arena)).data();
    } else if (tier.medium == policy::Medium::host) {
      auto arena = memory::HostArena::create(*tiers->device_, tier.capacity);
      if (!arena) return for_tier(tier, arena.error());
      base = tiers->host_arenas_.emplace_back(std::move(*arena)).data();
    } else {
      files = true;
    }
    tiers->base_.push_back(base);
  }
  if (files) {
    auto ring = memory::StagingRing::create(*tiers->device_, machine.ring_slot, static_cast<std::size_t>(machine.ring_slots));
    if (!ring) return ring.error();
    tiers->ring_ = std::move(*ring);
  }
  return tiers;
}

std::byte* Tiers::at(const policy::Place& place) const {
  std::byte* base = nullptr;
  if (place.at.kind == policy::Endpoint::ring) base = ring_.data();
  if (place.at.kind == policy::Endpoint::tier) base = base_.at(static_cast<std::size_t>(place.at.index));
  if (base == nullptr) throw std::logic_error("a place that is not memory was asked for its address");
  return base + place.offset;
}

}  // namespace ebb::runtime
