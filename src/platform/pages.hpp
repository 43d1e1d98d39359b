#pragma once
// Anonymous memory straight from the system.
#include <cstddef>
#include <cstdint>

#include "ebbtide/error.hpp"

namespace ebb::platform {

/// Zeroed memory that is not touched yet, aligned to 2 MiB (4096 when smaller than that), with huge pages where the
/// system gives them. Error out_of_memory with the size and the reason.
Result<std::byte*> map_pages(std::size_t bytes);
/// Makes the system give these pages their memory now, with a few threads, so that no copy waits for it later (a cache
/// that is used for a whole run pays for its memory once, at its start: hpdc23 sec. 4.1.4). At most half of what is
/// free is asked for: the rest, like anything refused, is given when it is first written.
void touch_pages(std::byte* memory, std::size_t bytes);
/// What the system could give to new pages now.
std::uint64_t free_host_memory() noexcept;
void unmap_pages(std::byte* memory, std::size_t bytes) noexcept;

}  // namespace ebb::platform
