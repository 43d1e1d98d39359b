#pragma once
// The arithmetic of a digest (digest.hpp), compiled for the processor and for the GPU.
#include <cstdint>

#include "device/on_both.hpp"

namespace ebb::device {

inline constexpr std::uint64_t kDigestStep = 0x9E3779B97F4A7C15u, kDigestStart = 0xD1B54A32D192ED03u;

/// The basis of the keys of 16-byte group `i`; the next one's is kDigestStep more.
EBB_ON_BOTH std::uint64_t digest_place(std::uint64_t i) { return kDigestStart + i * kDigestStep; }

/// Adds the 16 bytes of that group, as two little-endian numbers.
EBB_ON_BOTH void digest_add(std::uint64_t& low, std::uint64_t& high, std::uint64_t place, std::uint64_t first,
                            std::uint64_t second) {
  const std::uint64_t a = first + (place ^ (place >> 31));
  const std::uint64_t b = second + (place << 29 | place >> 35);
#ifdef __CUDA_ARCH__
  low += a * b;
  high += __umul64hi(a, b);
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  low += static_cast<std::uint64_t>(product);
  high += static_cast<std::uint64_t>(product >> 64);
#endif
}

}  // namespace ebb::device
