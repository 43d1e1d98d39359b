// The digest of a GPU's memory, computed on the GPU at memory bandwidth.
#include "device/cuda/digest.hpp"
#include "device/digest_mix.hpp"

namespace ebb::device::cuda {
namespace {

constexpr unsigned kThreads = 256, kUnrolled = 4;

// Neighbouring threads read neighbouring 16 bytes, kUnrolled of them before the first is used, which keeps enough loads
// in flight. Each block then adds up its threads' sums: no atomics, and nothing to zero first.
__global__ void __launch_bounds__(kThreads)
    digest(const ulonglong2* __restrict__ memory, std::size_t words, const unsigned char* __restrict__ tail,
           unsigned tail_bytes, ulonglong2* __restrict__ parts) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  std::uint64_t low = 0, high = 0, place = digest_place(i);
  const std::uint64_t place_step = step * kDigestStep;
  for (; i + (kUnrolled - 1) * step < words; i += kUnrolled * step) {
    ulonglong2 loaded[kUnrolled];
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k) loaded[k] = __ldcs(memory + i + k * step);
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k, place += place_step) {
      digest_add(low, high, place, loaded[k].x, loaded[k].y);
    }
  }
  for (; i < words; i += step, place += place_step) {
    const ulonglong2 loaded = __ldcs(memory + i);
    digest_add(low, high, place, loaded.x, loaded.y);
  }
  if (tail_bytes > 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    std::uint64_t last[2] = {0, 0};
    for (unsigned k = 0; k < tail_bytes; ++k) last[k / 8] |= std::uint64_t{tail[k]} << (8 * (k % 8));
    digest_add(low, high, digest_place(words), last[0], last[1]);
  }
  __shared__ std::uint64_t lows[kThreads / 32], highs[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) {
    low += __shfl_down_sync(0xffffffffu, low, lane);
    high += __shfl_down_sync(0xffffffffu, high, lane);
  }
  if (threadIdx.x % 32 == 0) {
    lows[threadIdx.x / 32] = low;
    highs[threadIdx.x / 32] = high;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < kThreads / 32; ++warp) {
    low += lows[warp];
    high += highs[warp];
  }
  parts[blockIdx.x] = make_ulonglong2(low, high);
  // The remaining parts, which no block writes: a full grid has no more blocks than there are parts.
  for (unsigned part = blockIdx.x + gridDim.x; part < kDigestParts; part += gridDim.x) {
    parts[part] = make_ulonglong2(0, 0);
  }
}

}  // namespace

cudaError_t enqueue_digest(cudaStream_t stream, const void* memory, std::size_t bytes, Digest* parts) {
  static_assert(sizeof(Digest) == sizeof(ulonglong2));
  void* there = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&there, parts, 0); error != cudaSuccess) return error;
  const std::size_t words = bytes / 16, a_block = std::size_t{kThreads} * kUnrolled;
  const std::size_t blocks = words / a_block + 1;
  digest<<<static_cast<unsigned>(blocks < kDigestParts ? blocks : kDigestParts), kThreads, 0, stream>>>(
      static_cast<const ulonglong2*>(memory), words, static_cast<const unsigned char*>(memory) + words * 16,
      static_cast<unsigned>(bytes % 16), static_cast<ulonglong2*>(there));
  return cudaGetLastError();
}

}  // namespace ebb::device::cuda
