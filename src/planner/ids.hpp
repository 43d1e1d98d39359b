#pragma once
// The plain values that the planner counts in. No clock, lock, thread, file or device handle.
#include <cstdint>

namespace ebb::planner {

using Time = std::int64_t;  // nanoseconds
using Bytes = std::uint64_t;
using Version = std::int64_t;
using HistoryId = std::uint32_t;  // a client with its own restore order; 0 is the store itself
using RequestId = std::uint64_t;  // chosen by the driver, never 0, never reused
using CommandId = std::uint64_t;
using TierIndex = std::int8_t;    // 0 is the fastest
using SegmentId = std::uint16_t;  // of a memory tier: numbered as they are lent, from 0
using NodeIndex = std::int8_t;    // 0 is the application
using PartyId = std::uint32_t;    // a lender or a borrower, chosen by the driver and never used again; 0: none
inline constexpr TierIndex kNoTier = -1;
inline constexpr Time kNever = INT64_MAX;
// From here on an offset in a memory tier is none: the rest is where the program's own memory is, which it lends for
// one replica (event::Adopt).
inline constexpr Bytes kAdopted = Bytes{1} << 63;
inline constexpr std::uint32_t kWholeLink = 1'000'000;  // millionths of a lender's bandwidth
inline constexpr double share_of(std::uint32_t link) { return static_cast<double>(link) / kWholeLink; }

// A checkpoint of the planner's table; a slot is used again with the next generation.
struct CheckpointRef {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool operator==(const CheckpointRef&) const = default;
};

}  // namespace ebb::planner
