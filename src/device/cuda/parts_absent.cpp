// A build with CUDA's headers and runtime, but without nvcc.
#include "device/cuda/parts.hpp"

namespace ebb::device::cuda {

cudaError_t load_parts() { return cudaErrorNotSupported; }
cudaError_t enqueue_parts(cudaStream_t, const PartList&) { return cudaErrorNotSupported; }

}  // namespace ebb::device::cuda
