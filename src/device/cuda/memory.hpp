#pragma once
// A GPU's memory, and host memory that it copies from and to at full speed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "device/cuda/driver.hpp"
#include "ebbtide/error.hpp"

namespace ebb::platform::cuda {

/// The unit of a GPU's mapped memory, and the alignment of what is allocated here.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

/// Thread safety: every function may be called from any thread; `context` must be current on it (Current).

/// A range of addresses, mapped to memory of the GPU and accessible to it and to every GPU that this process uses by
/// now and that can reach it. `plain`: cudaMalloc instead. Error out_of_memory with the bytes asked for and free; then
/// nothing is left behind.
Result<std::byte*> allocate_device(const Context& context, std::size_t bytes, bool plain);
/// Its `bytes` and `plain` are those of its allocation. No work on it may be under way.
void free_device(const Context& context, std::byte* memory, std::size_t bytes, bool plain) noexcept;
/// By cudaMalloc, whole units of kGranularity. Error out_of_memory.
Result<std::byte*> allocate_plain(const Context& context, std::size_t bytes);
std::uint64_t free_device_bytes() noexcept;
Error no_device_memory(const Context& context, std::size_t bytes, const std::string& why);

/// Touched and then registered as one range: a copy may not cross two registrations, and registering memory that is not
/// touched is eight times slower (hpdc23 sec. 4.1.4 pays for pinned memory once, at the start). Error out_of_memory.
Result<std::byte*> allocate_pinned(std::size_t bytes);
void free_pinned(std::byte* memory, std::size_t bytes) noexcept;
/// Device::pin() and unpin().
Result<void> pin(std::byte* memory, std::size_t bytes);
void unpin(std::byte* memory) noexcept;

/// Lets this GPU and each other one that the process uses by now reach the other's memory where the machine can: copies
/// between them then cross no host memory. GPUs that are not in use are left alone, for it would open a context there.
void enable_peers(const Context& context);

}  // namespace ebb::platform::cuda
