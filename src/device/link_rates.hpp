#pragma once
// How fast a device copies, within itself and from and to the host: bare copies, with nothing else in flight.
#include <cstdint>

#include "device/device.hpp"
#include "ebbtide/machine.hpp"

namespace ebb::device {

/// Medians of a few copies of `span` bytes between memory of the device and its (pinned) host memory, on streams of its
/// own. Takes 2 x `span` of each while it runs. Errors: out_of_memory, io_error.
Result<machine::LinkRates> measure_links(Device& device, std::size_t span);

}  // namespace ebb::device
