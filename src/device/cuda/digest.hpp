#pragma once
#include <cstddef>
#include <cuda_runtime_api.h>

#include "device/digest.hpp"

namespace ebb::platform::cuda {

/// Enqueues the digest of device memory, which is aligned to 16, on `stream`; no copy, and no wait of the host. `parts`
/// are kDigestParts in host memory that is registered: each block of threads writes one there. cudaErrorNotSupported:
/// this build was made without nvcc.
cudaError_t enqueue_digest(cudaStream_t stream, const void* memory, std::size_t bytes, Digest* parts);

}  // namespace ebb::platform::cuda
