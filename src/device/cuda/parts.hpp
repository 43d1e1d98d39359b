#pragma once
#include <cstdint>
#include <cuda_runtime_api.h>

#include "device/device.hpp"

namespace ebb::device::cuda {

/// A copy of more bytes is better made by the driver.
inline constexpr std::size_t kShortPart = 1 << 20;

/// Parts within one GPU's memory, of which none overlaps another; they go to the GPU as a kernel's parameters.
struct PartList {
  static constexpr unsigned kMost = 128;  // within the 4 KiB that all GPUs take
  BareCopy parts[kMost];
  unsigned count = 0;
};

/// Loads what enqueue_parts() starts, which may wait for all work on the GPU. Any error: there is none for this GPU, or
/// this build was made without nvcc.
cudaError_t load_parts();
/// Enqueues one copy of them all; the host does not wait. After an error nothing was enqueued.
cudaError_t enqueue_parts(cudaStream_t stream, const PartList& list);

}  // namespace ebb::device::cuda
