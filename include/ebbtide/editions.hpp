#pragma once
// Versions that a program writes again, in VELOC's files.
#include <cstdint>

namespace ebb {

/// Between the editions of a version: version `v + n * kVelocEdition` of a store with `Options::veloc_rank` is the n-th
/// edition of what VELOC calls version v. It is durable and found by the next process at once, and its file gets
/// VELOC's name, by one rename, when the older editions are dropped (docs/veloc.md).
inline constexpr std::int64_t kVelocEdition = std::int64_t{1} << 31;

}  // namespace ebb
