#pragma once

namespace ebb::platform {

/// Processors that this process may run on, at least 1: fewer than the machine has where a launcher binds its processes
/// (std::thread::hardware_concurrency() counts those of the machine).
unsigned usable_processors() noexcept;

}  // namespace ebb::platform
