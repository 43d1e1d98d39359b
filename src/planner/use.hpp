#pragma once
// What the planner counts, of each tier, of each link and of all.
#include <cstdint>

#include "planner/ids.hpp"

namespace ebb::planner {

struct TierUse {
  Bytes capacity = 0, used = 0, largest_gap = 0;
  std::uint32_t replicas = 0;
  std::uint64_t evictions = 0;
  Bytes adopted = 0;     // beside what is used, in memory of the program
  Bytes unreleased = 0;  // a file tier: beside what is used, of what was freed (event::Unreleased)
};

struct LinkUse {
  std::uint64_t transfers = 0, failures = 0;
  Bytes bytes = 0;
  Time busy = 0;
  double estimate_bytes_per_s = 0;
};

struct Counters {
  std::uint64_t dropped_flushes = 0, retries = 0, failures = 0, direct_writes = 0, direct_reads = 0, prefetches = 0,
                flushes = 0, events = 0, commands = 0;
  std::uint64_t relayed = 0;  // chunks that a peer passed on
  std::uint64_t split = 0;    // flushes that went two ways
};

}  // namespace ebb::planner
