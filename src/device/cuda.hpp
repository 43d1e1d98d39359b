#pragma once
// NVIDIA GPUs as devices. Everything here exists in every build and works without a driver: then there is no GPU, and
// cuda_absent_reason() says why.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/peer_memory.hpp"
#include "device/peer_pairs.hpp"
#include "ebbtide/error.hpp"

namespace ebb::device {

struct CudaFound {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  std::uint64_t total_bytes = 0;
  /// 0: unknown, since this process does not use that GPU yet; asking costs a context there (see find_cuda_devices).
  std::uint64_t free_bytes = 0;
  std::string pci;  // "0000:1b:00.0"
};

/// The GPUs that this process may use, by ordinal; none without a driver. `open` opens a context on each to ask for its
/// free bytes (some tenths of a second and some hundred megabytes a GPU), and closes it again.
std::vector<CudaFound> find_cuda_devices(bool open = false);
/// Why there is no GPU; empty when there is one.
std::string cuda_absent_reason();
/// The current GPU of the calling thread (0 if it chose none); none without a GPU. Opens no context.
std::optional<int> current_cuda_device();
/// The GPU whose memory (managed memory too) a pointer is in; nothing for host memory, pinned or not. Opens no context.
std::optional<int> device_of_pointer(const void* pointer);

/// GPU `ordinal` as a device (its rules: src/device/cuda/device.cpp). Its primary context is shared with the rest of
/// the process and outlives the device. Error unsupported, with the reason, when there is no such GPU.
///
/// With EBBTIDE_CUDA_PLAIN=1 in the environment, read here, its memory comes from cudaMalloc instead of mapped ranges,
/// because compute-sanitizer sees only such memory.
Result<std::shared_ptr<Device>> make_cuda_device(int ordinal);

/// The links of GPU `ordinal` to its peers. Memory is lent as POSIX file descriptors. Opens a context there. Error
/// unsupported, with the reason: there is no such GPU, or it cannot share memory.
Result<std::unique_ptr<PeerFabric>> make_cuda_fabric(int ordinal);
/// The way from one GPU to another, as the driver describes it. Opens no context.
PeerLink cuda_peer_link(int from, int to);

}  // namespace ebb::device
