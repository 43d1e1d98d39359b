// A build with CUDA's headers and runtime, but without nvcc.
#include "device/cuda/digest.hpp"

namespace ebb::device::cuda {

cudaError_t enqueue_digest(cudaStream_t, const void*, std::size_t, Digest*) { return cudaErrorNotSupported; }

}  // namespace ebb::device::cuda
