#pragma once

namespace ebb::os {

/// Processors that this process may run on, at least 1. A launcher may bind its processes to fewer than the machine
/// has, which std::thread::hardware_concurrency() counts.
unsigned usable_processors() noexcept;

}  // namespace ebb::os
