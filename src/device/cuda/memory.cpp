#include "device/cuda/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <sys/resource.h>

#include "device/cuda/ranges.hpp"
#include "os/files.hpp"
#include "os/memory_left.hpp"
#include "os/pages.hpp"

namespace ebb::device::cuda {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 30;  // mapping 32 GiB by these takes some milliseconds

std::string locked_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return "`ulimit -l` is " +
         (limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB");
}

Error no_pinned_memory(std::size_t bytes, const std::string& why) {
  return {Errc::out_of_memory, "cannot pin " + std::to_string(bytes) + " bytes of host memory (" +
                                   std::to_string(os::available_host_memory()) + " bytes available, " + locked_limit() +
                                   "): " + why};
}

}  // namespace

Error no_device_memory(const Context& context, std::size_t bytes, const std::string& why) {
  return {Errc::out_of_memory, "cannot allocate " + std::to_string(bytes) +
                                   " bytes on cuda:" + std::to_string(context.ordinal) + " (" +
                                   std::to_string(free_device_bytes()) + " bytes free): " + why};
}

std::uint64_t free_device_bytes() noexcept {
  std::size_t free = 0, total = 0;
  return forget(cudaMemGetInfo(&free, &total)) == cudaSuccess ? free : 0;
}

Result<std::byte*> allocate_plain(const Context& context, std::size_t bytes) {
  void* memory = nullptr;
  if (const cudaError_t error = forget(cudaMalloc(&memory, os::round_up(bytes, kGranularity))); error != cudaSuccess) {
    return no_device_memory(context, bytes, describe(error));
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % os::kBlock) {
    cudaFree(memory);
    return no_device_memory(context, bytes, "cudaMalloc gave memory that is not aligned to 4096");
  }
  return static_cast<std::byte*>(memory);
}

Result<std::byte*> allocate_device(const Context& context, std::size_t bytes, bool plain) {
  // Checked first, so that a size that does not fit does not briefly take all memory from others.
  if (bytes == 0 || bytes > free_device_bytes()) {
    return no_device_memory(context, bytes, bytes ? "that is more than is free" : "0 bytes were requested");
  }
  if (plain) return allocate_plain(context, bytes);

  const std::size_t size = os::round_up(bytes, kGranularity);
  MappedRange range(context);
  CUresult result = range.reserve(size);
  for (std::size_t at = 0; result == CUDA_SUCCESS && at < size; at += kPiece) {
    result = range.append(std::min(kPiece, size - at));
  }
  if (result != CUDA_SUCCESS) return no_device_memory(context, bytes, describe(of(result)));
  return range.take();
}

void free_device(const Context& context, std::byte* memory, std::size_t bytes, bool plain) noexcept {
  if (!memory) return;
  if (plain) {
    forget(cudaFree(memory));
    return;
  }
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (context.driver->cuMemUnmap(address, os::round_up(bytes, kGranularity)) != CUDA_SUCCESS) return;
  context.driver->cuMemAddressFree(address, os::round_up(bytes, kGranularity));
}

Result<std::byte*> allocate_pinned(std::size_t bytes) {
  // Pinned memory cannot be reclaimed: if it does not fit, the system kills a process.
  if (bytes > os::available_host_memory()) return no_pinned_memory(bytes, "that is more than is available");
  Result<std::byte*> mapped = os::map_pages(bytes);
  if (!mapped) return mapped;
  os::keep_from_children(*mapped, bytes);
  for (std::size_t at = 0; at < bytes;) {
    // touch_pages() touches at most half of what is free; registering touches the rest.
    const std::size_t piece = std::min<std::size_t>(bytes - at, os::round_up(os::free_host_memory() / 2));
    if (piece < std::min<std::size_t>(bytes - at, kGranularity)) break;
    os::touch_pages(*mapped + at, piece);
    at += piece;
  }
  Result<void> registered = pin(*mapped, os::round_up(bytes));
  if (registered) return mapped;
  os::unmap_pages(*mapped, bytes);
  return registered.error();
}

void free_pinned(std::byte* memory, std::size_t bytes) noexcept {
  if (!memory) return;
  unpin(memory);
  os::unmap_pages(memory, bytes);
}

Result<void> pin(std::byte* memory, std::size_t bytes) {
  // Portable: for the other GPUs of the process too.
  const cudaError_t error = forget(cudaHostRegister(memory, bytes, cudaHostRegisterPortable));
  if (error == cudaSuccess) return {};
  return no_pinned_memory(bytes, describe(error));
}

void unpin(std::byte* memory) noexcept { forget(cudaHostUnregister(memory)); }

void enable_peers(const Context& context) {
  for (const PeerGpu& peer : peers_in_use(context)) {
    // Not an error: access is enabled already.
    if (peer.reached) forget(cudaDeviceEnablePeerAccess(peer.ordinal, 0));
    if (!peer.reaches) continue;
    Result<Context> other = Context::retain(peer.ordinal);
    if (!other) continue;
    const Current current(*other);
    if (current.error() == cudaSuccess) forget(cudaDeviceEnablePeerAccess(context.ordinal, 0));
  }
}

}  // namespace ebb::device::cuda
