#pragma once
// Anonymous memory straight from the system.
#include <cstddef>

#include "ebbtide/error.hpp"

namespace ebb::platform {

/// Zeroed memory that is not touched yet, aligned to 2 MiB (4096 when smaller than that), with huge pages where the
/// system gives them. Error out_of_memory with the size and the reason.
Result<std::byte*> map_pages(std::size_t bytes);
void unmap_pages(std::byte* memory, std::size_t bytes) noexcept;

}  // namespace ebb::platform
