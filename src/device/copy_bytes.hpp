#pragma once
#include <cstddef>

namespace ebb::platform {

/// Copies as std::memcpy does; `bytes` may be 0. What no core's cache would hold goes past the caches where the
/// processor can (x86-64): the target's lines are then not read before they are written, which is a third of the
/// traffic of a copy, and the program's own data stay where they are. memcpy itself does so for far larger copies only.
///
/// Thread safety: as std::memcpy; whoever synchronises with the caller afterwards sees the bytes.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace ebb::platform
