#pragma once
#include <cstddef>

namespace ebb::device {

/// Copies as std::memcpy does; `bytes` may be 0. Large copies bypass the caches where the processor can (x86-64): the
/// target's cache lines are then not read before they are written, which saves a third of a copy's traffic, and the
/// program's own data stays cached. memcpy does so only for far larger copies.
///
/// Thread safety: as std::memcpy; a thread that synchronises with the caller afterwards sees the bytes.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace ebb::device
