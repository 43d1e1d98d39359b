#pragma once
// How much memory this process could still be given.
#include <cstdint>

#include "ebbtide/error.hpp"

namespace ebb::platform {

/// Bytes that the system could give to new pages, the page cache included, and that the control group of this process
/// (version 2) still allows. What the system does not say counts as no limit.
std::uint64_t available_host_memory();

/// Of so much available memory, what is left to the system and to others: 256 MiB, or 64 MiB for each of the node's
/// `processes` if that is more, for all of them may find memory at once before one of them has touched it; a quarter of
/// what there is if that is less.
std::uint64_t memory_to_keep(std::uint64_t available, std::uint64_t processes = 1);

/// Whether so many more pages leave the system, and the process's control groups (`group_left`: bytes that they still
/// allow), at least `keep`. Error out_of_memory with both figures.
Result<void> check_left(std::size_t bytes, std::uint64_t keep, std::uint64_t group_left = UINT64_MAX);

/// Makes these pages present by a write to each, which changes nothing, unless check_left() refuses it:
/// pages that are present cannot be taken back, and at the end of memory the kernel ends processes instead of refusing.
/// Unlike populate() it holds no lock of the whole address space while pages are zeroed, so that registering memory,
/// and with it the program's own work on its GPU, does not wait for it.
Result<void> touch_if_left(std::byte* memory, std::size_t bytes, std::uint64_t keep,
                           std::uint64_t group_left = UINT64_MAX);

}  // namespace ebb::platform
