#pragma once
// XXH3-128 (seed 0) of a whole zone in parts that are computed side by side, compiled for the processor and for the
// GPU. A zone is a row of blocks of 1 KiB. The lane sums of a block depend on nothing else; only folding them into the
// state, block by block, is sequential, and takes a few instructions for each.
#include <cstdint>

#include "device/digest.hpp"
#include "device/on_both.hpp"

namespace ebb::device {

inline constexpr unsigned kSumLanes = 8, kSumBlock = 1024, kSumStripes = kSumBlock / 64;

/// The secret's numbers, as they are used: the stripe `i` of a block has those from `i` on, and the last stripe of a
/// zone has `last`.
struct SumKeys {
  std::uint64_t stripes[24] = {};
  std::uint64_t last[kSumLanes] = {}, low[kSumLanes] = {}, high[kSumLanes] = {};
};

constexpr SumKeys sum_keys() {
  constexpr std::uint8_t kSecret[192] = {
      0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
      0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
      0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
      0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
      0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
      0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
      0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
      0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
      0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
      0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
      0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
  const auto word = [&](unsigned at) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{kSecret[at + i]} << (8 * i);
    return value;
  };
  SumKeys keys;
  for (unsigned i = 0; i < 24; ++i) keys.stripes[i] = word(8 * i);
  for (unsigned i = 0; i < kSumLanes; ++i) {
    keys.last[i] = word(121 + 8 * i);
    keys.low[i] = word(11 + 8 * i);
    keys.high[i] = word(117 + 8 * i);
  }
  return keys;
}

/// Adds two neighbouring words of a stripe to the sums of their lanes.
EBB_ON_BOTH void sum_add(std::uint64_t& even, std::uint64_t& odd, std::uint64_t first, std::uint64_t second,
                         std::uint64_t first_key, std::uint64_t second_key) {
  const std::uint64_t a = first ^ first_key, b = second ^ second_key;
  even += second + (a & 0xffffffffu) * (a >> 32);
  odd += first + (b & 0xffffffffu) * (b >> 32);
}

EBB_ON_BOTH std::uint64_t sum_start(unsigned lane) {
  switch (lane) {
    case 0: return 0xC2B2AE3Du;
    case 1: return 0x9E3779B185EBCA87u;
    case 2: return 0xC2B2AE3D27D4EB4Fu;
    case 3: return 0x165667B19E3779F9u;
    case 4: return 0x85EBCA77C2B2AE63u;
    case 5: return 0x85EBCA77u;
    case 6: return 0x27D4EB2F165667C5u;
    default: return 0x9E3779B1u;
  }
}

/// A lane's state before the next block; `key` is of the stripes' keys, 16 + lane.
EBB_ON_BOTH std::uint64_t sum_scramble(std::uint64_t state, std::uint64_t key) {
  return ((state ^ (state >> 47)) ^ key) * 0x9E3779B1u;
}

EBB_ON_BOTH std::uint64_t sum_fold(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return a * b ^ __umul64hi(a, b);
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}

/// One half of the result, from the states after the last block.
EBB_ON_BOTH std::uint64_t sum_end(const std::uint64_t* states, const std::uint64_t* keys, std::uint64_t bytes,
                                  bool high) {
  std::uint64_t sum = high ? ~(bytes * 0xC2B2AE3D27D4EB4Fu) : bytes * 0x9E3779B185EBCA87u;
  for (unsigned i = 0; i < kSumLanes; i += 2) sum += sum_fold(states[i] ^ keys[i], states[i + 1] ^ keys[i + 1]);
  sum ^= sum >> 37;
  sum *= 0x165667919E3779F9u;
  return sum ^ (sum >> 32);
}

}  // namespace ebb::device
