#pragma once
// Host memory that the system and this process's control groups still allow, according to /proc and /sys.
#include <cstdint>
#include <optional>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::os {

/// Memory available without swapping, from /proc/meminfo. Error io_error.
Result<std::uint64_t> available_memory(Files& files);

/// This process's control groups (versions 1 and 2).
struct CgroupMemory {
  std::uint64_t limit = 0;  // bytes; the lowest of all groups
  std::uint64_t left = 0;   // bytes until a group reaches its limit; file cache counts as free
};
/// Nothing: no group has a limit.
std::optional<CgroupMemory> cgroup_memory(Files& files);

/// Per cent of the last ten seconds in which every process that could run waited for memory: of the machine, from
/// /proc/pressure. 0 where the kernel does not say.
double memory_stalls(Files& files);

}  // namespace ebb::os
