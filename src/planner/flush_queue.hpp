#pragma once
// Which checkpoints have yet to go down from each memory tier, in the order in which they leave.
#include <set>

#include "planner/checkpoint.hpp"

namespace ebb::planner {

class FlushQueue {
 public:
  using Order = std::set<FlushKey>;
  const Order& all(TierIndex t) const { return all_[t]; }
  // Those of them that a `wait` asks for, or whose memory was recalled.
  const Order& forced(TierIndex t) const { return forced_[t]; }

  // The checkpoint is to leave `tier` (kNoTier: none).
  void put(Checkpoint& c, TierIndex tier, bool forced, const FlushKey& key) {
    if (tier == c.listed_on && forced == c.listed_forced && (tier == kNoTier || key == c.key)) return;
    if (c.listed_on != kNoTier) {
      all_[c.listed_on].erase(c.key);
      if (c.listed_forced) forced_[c.listed_on].erase(c.key);
    }
    c.listed_on = tier;
    c.listed_forced = forced;
    c.key = key;
    if (tier == kNoTier) return;
    all_[tier].insert(key);
    if (forced) forced_[tier].insert(key);
  }

 private:
  PerTier<Order> all_, forced_;
};

}  // namespace ebb::planner
