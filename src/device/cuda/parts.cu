// Many short copies within a GPU's memory as one: each call of the driver's costs the host more than the copy itself.
#include <algorithm>

#include "device/cuda/parts.hpp"

namespace ebb::device::cuda {
namespace {

constexpr unsigned kThreads = 256, kUnrolled = 4, kMostBlocks = 16;  // blocks of a part
constexpr std::size_t kOfABlock = std::size_t{kThreads} * kUnrolled * sizeof(ulonglong2);

// As whole words, and then the bytes that are left.
template <class Word>
__device__ void copy_words(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  const std::size_t words = bytes / sizeof(Word), step = std::size_t{gridDim.x} * kThreads;
  const auto* const source = reinterpret_cast<const Word*>(from);
  auto* const target = reinterpret_cast<Word*>(to);
  std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnrolled - 1) * step < words; i += kUnrolled * step) {
    Word loaded[kUnrolled];
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k) loaded[k] = source[i + k * step];
#pragma unroll
    for (unsigned k = 0; k < kUnrolled; ++k) target[i + k * step] = loaded[k];
  }
  for (; i < words; i += step) target[i] = source[i];
  const std::size_t rest = words * sizeof(Word) + threadIdx.x;
  if (blockIdx.x == 0 && rest < bytes) to[rest] = from[rest];
}

// A row of blocks to a part. Its words are as long as both places allow.
__global__ void __launch_bounds__(kThreads) copy_parts(const __grid_constant__ PartList list) {
  const BareCopy& part = list.parts[blockIdx.y];
  auto* const to = static_cast<unsigned char*>(part.to);
  const auto* const from = static_cast<const unsigned char*>(part.from);
  const std::uintptr_t places = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (places % sizeof(ulonglong2) == 0)
    copy_words<ulonglong2>(to, from, part.bytes);
  else if (places % sizeof(std::uint64_t) == 0)
    copy_words<std::uint64_t>(to, from, part.bytes);
  else if (places % sizeof(std::uint32_t) == 0)
    copy_words<std::uint32_t>(to, from, part.bytes);
  else
    copy_words<unsigned char>(to, from, part.bytes);
}

}  // namespace

cudaError_t load_parts() {
  cudaFuncAttributes found{};
  return cudaFuncGetAttributes(&found, copy_parts);
}

cudaError_t enqueue_parts(cudaStream_t stream, const PartList& list) {
  std::size_t longest = 0;
  for (unsigned i = 0; i < list.count; ++i) longest = std::max(longest, list.parts[i].bytes);
  if (longest == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min<std::size_t>(kMostBlocks, (longest - 1) / kOfABlock + 1));
  // Not <<<>>>: cudaGetLastError() may have an earlier error of the program's.
  void* arguments[] = {const_cast<PartList*>(&list)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(copy_parts), dim3(blocks, list.count), dim3(kThreads),
                          arguments, 0, stream);
}

}  // namespace ebb::device::cuda
