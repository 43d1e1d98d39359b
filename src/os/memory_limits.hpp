#pragma once
// Host memory that the system and this process's control groups still allow, as files of /proc and /sys say.
#include <cstdint>
#include <optional>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::platform {

/// Memory that can still be had without swapping, from /proc/meminfo. Error io_error.
Result<std::uint64_t> available_memory(Files& files);

/// Of this process's control groups (versions 1 and 2).
struct CgroupMemory {
  std::uint64_t limit = 0;  // bytes, the least of all
  std::uint64_t left = 0;   // likewise, until a limit is met; cached files give way and are not counted
};
/// Nothing: none has a limit.
std::optional<CgroupMemory> cgroup_memory(Files& files);

}  // namespace ebb::platform
