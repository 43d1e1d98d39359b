#include "planner/overflow_rule.hpp"

namespace ebb::planner {

Bytes most_beside(const Beside& beside) { return beside.stalled > kMostStalled ? 0 : beside.left / kBesidePart; }

bool through_page_cache(const PoolWrite& write, const Beside& beside) {
  if (write.bytes < kLeastOverflow || write.waiting <= write.share / 2) return false;
  const Bytes most = most_beside(beside);
  return beside.bytes <= most && write.bytes <= most - beside.bytes;
}

}  // namespace ebb::planner
