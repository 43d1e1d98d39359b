// A build with CUDA's headers and runtime, but without nvcc.
#include "device/cuda/zones.hpp"

namespace ebb::device::cuda {

cudaError_t enqueue_zones(cudaStream_t, const ZoneJob&, ZoneShape) { return cudaErrorNotSupported; }

}  // namespace ebb::device::cuda
