#pragma once
// How much more memory this process may use.
#include <cstdint>

#include "ebbtide/error.hpp"

namespace ebb::os {

/// Bytes that the system could give to new pages, page cache included, and that this process's control groups still
/// allow (memory_limits.hpp). What the system does not report counts as unlimited.
std::uint64_t available_host_memory();

/// How much of `available` memory to leave to the system and to others: 256 MiB, or 64 MiB for each of the node's
/// `processes` if that is more, since all of them may see the memory before any has touched it; but at most a quarter.
std::uint64_t memory_to_keep(std::uint64_t available, std::uint64_t processes = 1);

/// Checks that `bytes` more pages leave the system, and the process's control groups (`group_left`: bytes that they
/// still allow), at least `keep`. Error out_of_memory with both figures.
Result<void> check_left(std::size_t bytes, std::uint64_t keep, std::uint64_t group_left = UINT64_MAX);

/// Makes these pages present by a write to each that changes nothing, unless check_left() refuses: pages cannot be
/// taken back, and when memory runs out the kernel kills processes instead of refusing. Unlike populate() it does not
/// hold the address space's lock while the kernel zeroes pages, so memory registration, and with it the program's own
/// GPU work, does not wait for it.
Result<void> touch_if_left(std::byte* memory, std::size_t bytes, std::uint64_t keep,
                           std::uint64_t group_left = UINT64_MAX);

}  // namespace ebb::os
