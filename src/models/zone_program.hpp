#pragma once
// What a program writes around one cut of its memory, as the zone machine runs it: a trace, or a synthetic pattern.
#include <cstdint>
#include <span>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::models {

using planner::Bytes;
using planner::Time;

inline constexpr Bytes kZonePage = 4096;    // what a write touches; a fine zone
inline constexpr Bytes kZoneBlock = 65536;  // a coarse zone

struct ZoneWrite {
  Time at = 0;             // of the program's own time since the cut: stalls are not in it
  std::uint32_t page = 0;  // of its memory
};

struct ZoneProgram {
  Bytes memory = 0;
  std::vector<std::uint32_t> before;  // pages that the interval before the cut wrote, in the order of the first writes
  std::vector<ZoneWrite> after;       // in the order of their times
};

enum class ZoneOrder : std::uint8_t { same, reversed, shuffled };  // of the blocks, against the interval before

// Before the cut a share `dirty` of the blocks is written, by address, and of each block a share `filled` of its pages.
// After the cut as many blocks are written: a share `reuse` of them the same ones, the others clean ones while there
// are any. `pace`: bytes a second, blocks counted whole.
struct ZonePattern {
  double dirty = 1, filled = 1, reuse = 1;
  ZoneOrder order = ZoneOrder::same;
  double pace = 4e9;
  std::uint64_t seed = 1;
};

// The paper's seven programs have their figures only in plots, and one its name. These have their kinds (sec. 4.2.1
// and 6.1): few clean zones, few writes, a small working set, zones that are written in part. The last three break what
// holds for the others: the order of the modes, and the time that is lost with D.
struct NamedPattern {
  const char* name;
  const char* says;
  ZonePattern pattern;
  bool adversarial = false;
};
std::span<const NamedPattern> zone_patterns();

ZoneProgram make_program(Bytes memory, const ZonePattern& pattern);  // std::logic_error for one that cannot be

}  // namespace ebb::models
