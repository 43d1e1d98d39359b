// What comes up, and when. The plan is a walk over the restore order: the nearest checkpoints belong on the fastest tier
// as far as it reaches, the next ones on the next memory tier. Nothing nearer is ever displaced by something farther.
#include <algorithm>

#include "policy/state.hpp"

namespace ebb::policy {

// A program that writes is left alone: its next call is most likely another write, and a prefetch would compete with the
// flushes that it needs. It has turned round when it restores, says so, waits for its flushes, or has fallen silent.
bool Planner::State::prefetching(const History& h) {
  if (h.order.size() == 0) return false;
  if (machine.manual_prefetch && !h.started) return false;
  if (h.reading) return true;
  if (h.unwritten > 0) return false;
  constexpr Time kSilence = 2'000'000;
  const Time idle_at = h.last_write + std::max(kSilence, 4 * h.write_interval);
  if (now >= idle_at) return true;
  wakeup = std::min(wakeup, idle_at);
  return false;
}

void Planner::State::schedule_prefetches() {
  for (const History& h : histories)
    if (prefetching(h)) prefetch(h);
}

void Planner::State::prefetch(const History& h) {
  if (!memory(0)) return;
  Bytes reach[kMaxTiers] = {};  // of this tier and those above
  TierIndex memories = 0;
  for (Bytes sum = 0; memories < tiers() && memory(memories); ++memories)
    reach[memories] = sum += arenas[static_cast<std::size_t>(memories)].capacity();
  Bytes ahead = 0;
  std::uint32_t full = 0;  // tiers (bits) without room for this one, hence none for those behind it
  const std::uint32_t all = (1u << memories) - 1;
  for (auto p = h.order.head(); p < h.order.tail() && full != all; ++p) {
    const Slot slot = h.order.at(p);
    if (slot == RestoreOrder::kWithdrawn) continue;
    Checkpoint& c = checkpoints[slot];
    if (!c.stored || c.hint != p || c.bytes == 0) continue;
    const Bytes size = footprint(0, c.bytes);
    ahead += size;
    TierIndex target = 0;
    while (target < memories && ahead > reach[target]) ++target;
    if (target == memories) return;
    TierIndex have = kNoTier;  // the fastest copy, or copy under way
    for (TierIndex t = 0; t < tiers() && have == kNoTier; ++t) {
      const Replica& r = c.at[static_cast<std::size_t>(t)];
      const bool filling = r.filler != kNoMove && !moves[static_cast<std::size_t>(r.filler)].cancelled;
      if (complete(r.state) || filling) have = t;
    }
    if (have == kNoTier) continue;
    if (have <= target) {
      Replica& r = c.at[static_cast<std::size_t>(have)];
      if (complete(r.state) && !r.wanted) {
        r.wanted = true;
        refresh(slot);
      }
      continue;
    }
    if (c.prefetch_failures >= 2) continue;
    const Bytes window = std::max(4 * size, reach[0] / 4);
    for (TierIndex t = target; t < std::min(have, memories); ++t) {
      if (full >> t & 1 || c.at[static_cast<std::size_t>(t)].state != ReplicaState::gone) continue;
      full |= 1u << t;
      if (!room_for_more(have, t, MoveKind::prefetch)) continue;
      const Rights rights{.who = Rights::prefetch, .distance = distance(c), .costly = ahead <= window, .self = slot};
      const Room room = look(t, c.bytes, rights);
      if (!room.possible) continue;
      if (room.wait > 0) {
        urge(t, room, rights, now);
        continue;
      }
      take(t, slot, room, ReplicaState::reading);
      start_move(MoveKind::prefetch, slot, have, t, 0, false, now);
      ++counters.prefetches;
      full &= ~(1u << t);
      break;
    }
  }
}

}  // namespace ebb::policy
