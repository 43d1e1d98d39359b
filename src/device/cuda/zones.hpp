#pragma once
#include <cuda_runtime_api.h>

#include "device/zones.hpp"

namespace ebb::device::cuda {

/// How the digests are shared out among the GPU's threads; 0: chosen by the zones. For measurements.
struct ZoneShape {
  unsigned warps = 0;   // to a zone: 1, 2, 4 or 8
  unsigned rounds = 0;  // of a block: in each round its 8 warps digest 8 / warps zones
};

/// Enqueues a job; no copy, and the host does not wait. cudaErrorNotSupported: built without nvcc.
cudaError_t enqueue_zones(cudaStream_t stream, const ZoneJob& job, ZoneShape shape = {});

}  // namespace ebb::device::cuda
