#pragma once
// What a checkpoint of most tests weighs.
#include <cstddef>
#include <cstdint>

namespace ebb::store {

inline constexpr std::size_t kSize = 64 << 10;
inline constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

}  // namespace ebb::store
