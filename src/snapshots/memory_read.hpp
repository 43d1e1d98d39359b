#pragma once
#include <cstddef>

namespace ebb::snapshots {

/// Copies memory of this process that may have been unmapped. False: it was, or cannot be read. Where the kernel
/// refuses process_vm_readv, this is os::try_copy(). Allocates nothing.
bool read_memory(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace ebb::snapshots
