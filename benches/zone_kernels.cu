#include "benches/zone_kernels.hpp"

namespace bench {
namespace {

constexpr unsigned kThreads = 256, kLanes = 32, kWarps = kThreads / kLanes, kLoads = 8;
constexpr std::size_t kWordsAPiece = std::size_t{kLanes} * kLoads, kPiece = kWordsAPiece * 16;

__device__ std::uint64_t never_written;

// As the digest reads: a warp a piece of 4 KiB at a time, all of its loads before the first use.
__device__ __forceinline__ void read_piece(std::uint64_t& all, const ulonglong2* words) {
  ulonglong2 loaded[kLoads];
#pragma unroll
  for (unsigned k = 0; k < kLoads; ++k) loaded[k] = __ldcs(words + k * kLanes + threadIdx.x % kLanes);
#pragma unroll
  for (unsigned k = 0; k < kLoads; ++k) all ^= loaded[k].x ^ loaded[k].y;
}

__global__ void __launch_bounds__(kThreads)
    read_stretches(const ulonglong2* memory, std::size_t pieces, std::size_t pieces_a_block) {
  const std::size_t first = blockIdx.x * pieces_a_block;
  const std::size_t end = first + pieces_a_block < pieces ? first + pieces_a_block : pieces;
  std::uint64_t all = 0;
  for (std::size_t piece = first + threadIdx.x / kLanes; piece < end; piece += kWarps) {
    read_piece(all, memory + piece * kWordsAPiece);
  }
  if (all == 0x5bd1e995a1b2c3d4u) never_written = all;
}

__global__ void __launch_bounds__(kThreads) read_in_turns(const ulonglong2* memory, std::size_t pieces) {
  std::uint64_t all = 0;
  for (std::size_t piece = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; piece < pieces;
       piece += std::size_t{gridDim.x} * kWarps) {
    read_piece(all, memory + piece * kWordsAPiece);
  }
  if (all == 0x5bd1e995a1b2c3d4u) never_written = all;
}

__global__ void fill(std::uint64_t* memory, std::size_t words, std::uint64_t seed) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    memory[i] = stirred(i, seed);
  }
}

__global__ void touch(std::uint64_t* memory, std::uint32_t words_a_zone, std::uint32_t zones, double share,
                      std::uint64_t seed) {
  const std::uint32_t zone = blockIdx.x * blockDim.x + threadIdx.x;
  if (zone >= zones || !chosen(zone, share, seed)) return;
  memory[std::size_t{zone} * words_a_zone + stirred(zone, seed + 1) % words_a_zone] += 1;
}

unsigned multiprocessors() {
  int device = 0, n = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(n);
}

}  // namespace

cudaError_t enqueue_read(cudaStream_t stream, const std::byte* memory, std::size_t bytes, std::size_t bytes_a_block) {
  const auto* const words = reinterpret_cast<const ulonglong2*>(memory);
  if (bytes_a_block == 0) {
    read_in_turns<<<multiprocessors() * 8, kThreads, 0, stream>>>(words, bytes / kPiece);
  } else {
    const auto blocks = static_cast<unsigned>((bytes + bytes_a_block - 1) / bytes_a_block);
    read_stretches<<<blocks, kThreads, 0, stream>>>(words, bytes / kPiece, bytes_a_block / kPiece);
  }
  return cudaGetLastError();
}

cudaError_t enqueue_fill(cudaStream_t stream, std::byte* memory, std::size_t bytes, std::uint64_t seed) {
  fill<<<multiprocessors() * 8, kThreads, 0, stream>>>(reinterpret_cast<std::uint64_t*>(memory), bytes / 8, seed);
  return cudaGetLastError();
}

cudaError_t enqueue_touch(cudaStream_t stream, std::byte* memory, std::uint32_t zone, std::uint32_t zones, double share,
                          std::uint64_t seed) {
  touch<<<(zones + kThreads - 1) / kThreads, kThreads, 0, stream>>>(reinterpret_cast<std::uint64_t*>(memory), zone / 8,
                                                                    zones, share, seed);
  return cudaGetLastError();
}

}  // namespace bench
