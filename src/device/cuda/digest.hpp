#pragma once
#include <cstddef>
#include <cuda_runtime_api.h>

#include "device/digest.hpp"

namespace ebb::device::cuda {

/// Enqueues the digest of device memory, aligned to 16, on `stream`; no copy, and the host does not wait. `parts` are
/// kDigestParts in registered host memory: each block of threads writes one. cudaErrorNotSupported: built without nvcc.
cudaError_t enqueue_digest(cudaStream_t stream, const void* memory, std::size_t bytes, Digest* parts);

}  // namespace ebb::device::cuda
