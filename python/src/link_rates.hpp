#pragma once
// How fast a device copies, within itself and from and to the host: bare copies, with nothing else under way.
#include <cstdint>

#include "device/device.hpp"

namespace ebb::python {

/// Bytes a second.
struct LinkRates {
  double device_copy = 0;  // within the device
  double device_to_host = 0;
  double host_to_device = 0;
  double both = 0;  // both ways at once, together
};

/// Medians of a few copies of `span` bytes between memory of the device and its (pinned) host memory, on streams of its
/// own. Takes 2 x `span` of each while it runs. Errors: out_of_memory, io_error.
Result<LinkRates> measure_links(platform::Device& device, std::size_t span);

}  // namespace ebb::python
