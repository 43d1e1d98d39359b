#include "store/zone_scratches.hpp"

#include <algorithm>

namespace ebb::store {

using device::Digest;
using device::PlacedZone;

Result<std::unique_ptr<ZoneScratch>> ZoneScratches::take(const std::shared_ptr<device::Device>& device,
                                                         std::size_t zones) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(free_, [&](const auto& one) { return one->zones >= zones; });
    if (found != free_.end()) {
      auto scratch = std::move(*found);
      free_.erase(found);
      return scratch;
    }
  }
  using Where = device::DeviceBuffer::Where;
  auto made = std::make_unique<ZoneScratch>();
  for (const Where where : {Where::device, Where::host}) {
    auto memory = device::DeviceBuffer::make(device, where, zones * (sizeof(Digest) + sizeof(PlacedZone)));
    if (!memory) return memory.error();
    (where == Where::device ? made->device : made->host) = std::move(*memory);
  }
  made->zones = zones;
  return made;
}

void ZoneScratches::put_back(std::unique_ptr<ZoneScratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

}  // namespace ebb::store
