#pragma once
// What benches/gpu_zones.cpp compares with, and how it changes zones.
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "device/on_both.hpp"

namespace bench {

/// Reads all of the memory, a multiple of 4 KiB, and does nothing with it. A block of threads reads `bytes_a_block`, a
/// multiple of 4 KiB, at a stretch; 0: as many blocks as run at once read all of it in turns.
cudaError_t enqueue_read(cudaStream_t stream, const std::byte* memory, std::size_t bytes, std::size_t bytes_a_block);
/// Arbitrary numbers.
cudaError_t enqueue_fill(cudaStream_t stream, std::byte* memory, std::size_t bytes, std::uint64_t seed);
/// Adds one to a number in each zone that is chosen.
cudaError_t enqueue_touch(cudaStream_t stream, std::byte* memory, std::uint32_t zone, std::uint32_t zones, double share,
                          std::uint64_t seed);

EBB_ON_BOTH std::uint64_t stirred(std::uint64_t x, std::uint64_t seed) {
  x = (x + 1) * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u;
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}
/// Whether a zone is one of some `share` of all, drawn from the seed.
EBB_ON_BOTH bool chosen(std::uint32_t zone, double share, std::uint64_t seed) {
  return static_cast<double>(stirred(zone, seed) >> 32) < share * 4294967296.0;
}

}  // namespace bench
