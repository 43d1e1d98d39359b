#pragma once
// A GPU's memory, and host memory that it copies from and to at full speed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver.hpp"
#include "ebbtide/error.hpp"

namespace ebb::device::cuda {

/// The unit of a GPU's mapped memory, and the alignment of allocations here.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

/// Thread safety: every function may be called from any thread; `context` must be current on it (Current).

/// A range of addresses, mapped to GPU memory that is accessible to this GPU and to every GPU that the process uses now
/// and that can reach it. `plain`: cudaMalloc instead. Error out_of_memory with the bytes requested and free; nothing
/// stays allocated.
Result<std::byte*> allocate_device(const Context& context, std::size_t bytes, bool plain);
/// `bytes` and `plain` as at its allocation. No work on it may be in flight.
void free_device(const Context& context, std::byte* memory, std::size_t bytes, bool plain) noexcept;
/// By cudaMalloc, whole units of kGranularity. Error out_of_memory.
Result<std::byte*> allocate_plain(const Context& context, std::size_t bytes);
std::uint64_t free_device_bytes() noexcept;
Error no_device_memory(const Context& context, std::size_t bytes, const std::string& why);

/// Touched, then registered as one range: a copy may not cross two registrations, and registering memory that is not
/// touched is eight times slower (hpdc23 sec. 4.1.4 pays for pinned memory once, at the start). Error out_of_memory.
Result<std::byte*> allocate_pinned(std::size_t bytes);
void free_pinned(std::byte* memory, std::size_t bytes) noexcept;
/// Device::pin() and unpin().
Result<void> pin(std::byte* memory, std::size_t bytes);
void unpin(std::byte* memory) noexcept;

/// Gives this GPU and each other GPU in use by the process access to each other's memory where the machine allows it,
/// so that copies between them bypass host memory. Leaves other GPUs alone, because that would open a context there.
void enable_peers(const Context& context);

}  // namespace ebb::device::cuda
