#pragma once
// What the agent of a node's pool writes through the page cache: what has no room in the pool.
#include "planner/ids.hpp"

namespace ebb::planner {

inline constexpr Bytes kLeastOverflow = Bytes{1} << 20;  // of one object: smaller ones cost more than they save
inline constexpr double kMostStalled = 1;
inline constexpr Bytes kBesidePart = 8;  // of the memory that is left: the system holds up who writes twice as much

/// The memory that stands beside a pool: bytes in the page cache that no sync has put on the disk yet.
struct Beside {
  Bytes bytes = 0;     // now
  Bytes left = 0;      // memory that the system and the control groups of the agent leave, without what they can drop
  double stalled = 0;  // per cent of the last ten seconds in which every process that could run waited for memory
};

/// The most that may stand there: a part of what is left. None while processes wait for memory.
Bytes most_beside(const Beside& beside);

/// An object that is in the pool, or passes by it.
struct PoolWrite {
  Bytes bytes = 0;
  Bytes waiting = 0;  // bytes that its process has handed over, and whose memory it does not have back
  Bytes share = 0;    // that its process may fill: its own, and what it has on lease
};

/// Whether it goes through the page cache: its process is short of room when half of its share waits, and what it has
/// back then is filled while the disk writes the other half. False: past the page cache, at the disk's pace.
bool through_page_cache(const PoolWrite& write, const Beside& beside);

}  // namespace ebb::planner
