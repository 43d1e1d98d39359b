#include "planner/prefetch_planner.hpp"

#include <algorithm>

namespace ebb::planner {

void PrefetchPlanner::schedule() {
  if (!context_.memory(0)) return;
  for (History& h : table_.histories())
    if (prefetching(h)) prefetch(h);
}

// The only copy in memory that its lender will take, and that no tier below has room for, goes up: from there it goes
// down to what is left of that memory. What must leave for it up there is flushed. What is in two parts goes up whole
// if its rest is in such memory.
void PrefetchPlanner::rescue_upwards() {
  for (TierIndex t = 1; t < context_.tiers(); ++t) {
    if (!context_.memory(t) || !space_.map(t).shortened()) continue;
    for (Slot s : space_.map(t).owners_beyond()) {
      const Checkpoint& c = table_[s];
      const TierIndex counts = c.rest_on(t) ? c.split.on : t;
      const bool only = complete(c.at[counts].state) && table_.fastest(c) == counts && table_.lowest(c) == counts;
      if (!only || !space_.urgently_recalled(c, counts) || c.at[counts].uses > 0 || goes_down(s, counts)) continue;
      const Rights rights{.who = Rights::demand, .self = s};
      for (TierIndex to = counts; to-- > 0;) {
        if (!context_.memory(to) || c.at[to].state != ReplicaState::gone) continue;
        const Room room = rooms_.look(to, c.bytes, rights);
        if (!room.possible) continue;
        if (room.wait > 0) {
          flush_planner_.urge(to, room, rights, context_.now);
          continue;
        }
        rooms_.take(to, s, room, ReplicaState::reading);
        replicas_.start_move(MoveKind::prefetch, s, counts, to, true, context_.now);
        break;
      }
    }
  }
}

// Whether a tier below takes it: one that has room or can make some, or the one that has its rest, if that stays there.
bool PrefetchPlanner::goes_down(Slot s, TierIndex from) {
  const Checkpoint& c = table_[s];
  const Rights rights{.who = Rights::demand, .down = true, .self = s};
  for (TierIndex to = context_.below(from); to != kNoTier; to = context_.below(to)) {
    if (c.rest_on(to)) {
      if (!space_.place_beyond(c, to)) return true;
    } else if (context_.memory(to) ? rooms_.look(to, c.bytes, rights).possible : space_.fits(to, c.bytes)) {
      return true;
    }
  }
  return false;
}

// A program that writes is left alone: its next call is most likely another write, and a prefetch would compete with
// the flushes that it needs. It has turned round when it restores, says so, waits for its flushes, or has fallen
// silent.
bool PrefetchPlanner::prefetching(const History& h) {
  if (h.order.size() == 0) return false;
  if (context_.machine.manual_prefetch && !h.started) return false;
  if (h.reading) return true;
  if (h.unwritten > 0) return false;
  constexpr Time kSilence = 2'000'000;
  const Time idle_at = h.last_write + std::max(kSilence, 4 * h.write_interval);
  if (context_.now >= idle_at) return true;
  context_.wake_by(idle_at);
  return false;
}

void PrefetchPlanner::prefetch(History& h) {
  Bytes reach = 0;  // of this tier and those above
  for (TierIndex t = 0; t < context_.tiers() && context_.memory(t); ++t) {
    reach += space_.map(t).capacity() + space_.adoptable(t);
    Cursor at = h.served[t];
    if (at.next < h.order.head()) at = Cursor{h.order.head(), 0};
    for (bool blocked = false; !blocked && at.next < h.order.tail();) {
      const Slot slot = h.order.at(at.next);
      if (slot != RestoreOrder::kWithdrawn) {
        const Checkpoint& c = table_[slot];
        if (c.stored() && c.hint == at.next && c.bytes > 0) {
          const Bytes ahead = at.ahead + space_.footprint(0, c.bytes);
          blocked = ahead > reach || bring(slot, t, ahead) == Step::blocked;
          if (blocked) break;
          at.ahead = ahead;
        }
      }
      ++at.next;
    }
    h.served[t] = at;
  }
}

// Sees to it that a checkpoint is on `target` or above, or on its way there.
PrefetchPlanner::Step PrefetchPlanner::bring(Slot slot, TierIndex target, Bytes ahead) {
  Checkpoint& c = table_[slot];
  TierIndex have = kNoTier;  // the fastest copy, complete or being written
  for (TierIndex t = 0; t < context_.tiers() && have == kNoTier; ++t) {
    const Replica& r = c.at[t];
    if (good(r) || transfers_.filling(r)) have = t;
  }
  if (have == kNoTier) return Step::served;  // lost: nothing can be done
  if (have <= target) {
    Replica& r = c.at[have];
    if (complete(r.state) && !r.wanted) {
      r.wanted = true;
      replicas_.refresh(slot);
    }
    return Step::served;
  }
  if (c.prefetch_failures >= 2) return Step::served;
  if (c.at[target].state != ReplicaState::gone) return Step::blocked;
  if (!transfers_.room_for_more(have, target, MoveKind::prefetch)) return Step::blocked;
  const Rights rights{
      .who = Rights::prefetch, .distance = table_.distance(c), .costly = ahead <= costly_window(c), .self = slot};
  const Room room = rooms_.look(target, c.bytes, rights);
  if (!room.possible) return Step::blocked;
  if (room.wait > 0) {
    flush_planner_.urge(target, room, rights, context_.now);
    return Step::blocked;
  }
  rooms_.take(target, slot, room, ReplicaState::reading);
  replicas_.start_move(MoveKind::prefetch, slot, have, target, false, context_.now);
  ++context_.counters.prefetches;
  return Step::started;
}

// As far ahead as the slowest link must work so that it never idles: a few checkpoints, and what it carries meanwhile.
Bytes PrefetchPlanner::costly_window(const Checkpoint& c) const {
  constexpr double kSeconds = 0.02;
  double slowest = 0;
  for (TierIndex t = 0; t < context_.tiers(); ++t)
    if (!context_.memory(t)) slowest = links_[links_.route(t, kNoTier)[0]].estimate.bytes_per_s();
  return 4 * space_.footprint(0, c.bytes) + static_cast<Bytes>(slowest * kSeconds);
}

}  // namespace ebb::planner
