#pragma once
// Sizes and times that the tests of the planner are written in.
#include "planner/ids.hpp"

namespace ebb::planner {

inline constexpr Bytes kMiB = 1 << 20;
inline constexpr Time kUs = 1000, kMs = 1'000'000;

}  // namespace ebb::planner
