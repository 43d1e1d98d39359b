// What goes down, and when. Flushes leave in eviction order (needed latest
// first), ahead of need while the program writes, on demand otherwise; a store
// that keeps its checkpoints flushes all of them.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

bool Planner::State::speculate() const {
  if (!context.machine.ephemeral) return true;
  for (const History& h : table.histories())
    if (h.last_write > 0 && !h.reading) return true;
  return false;
}

// What the next writes find on a memory tier: what is free, may go for nothing,
// or is on its way down.
Bytes Planner::State::ready_ahead(TierIndex tier) const {
  Bytes ready = space.free_bytes(tier) + space.spare_bytes(tier);
  for (TierIndex to = context.below(tier); to != kNoTier; to = context.below(to))
    for (MoveIndex i : transfers.link(transfers.route_of(tier, to).link[0]).moves) {
      const Move& m = transfers[i];
      if (m.kind == MoveKind::flush && m.from == tier && m.to == to && !m.cancelled)
        ready += space.footprint(tier, m.total);
    }
  return ready;
}

// Room for one, and for those that are written while one is flushed.
Bytes Planner::State::enough_ahead(const Checkpoint& c, TierIndex tier) const {
  constexpr Time kMost = 8;
  const Time interval = table.history_of(c).write_interval,
             flush = transfers.route_time(tier, context.below(tier), c.bytes);
  const Time written = interval > 0 ? std::min(kMost, flush / interval) : kMost;
  return space.footprint(tier, c.bytes) * static_cast<Bytes>(2 + written);
}

// Whether all that would have to go is needed later than what is `than` away.
bool Planner::State::all_later(TierIndex tier, const Room& room, std::int64_t than) const {
  const auto fragments = space.map(tier).fragments();
  for (std::size_t i = room.window.first; i < room.window.last; ++i)
    if (fragments[i].owner != FragmentMap::kGap && table.distance(table[fragments[i].owner]) <= than) return false;
  return true;
}

void Planner::State::schedule_flushes() {
  const bool ahead = speculate();
  // A store that keeps must get everything down; rules of recency do not say
  // what is needed later.
  const bool sparing = context.machine.ephemeral && (context.machine.eviction == EvictionPolicy::score ||
                                                     context.machine.eviction == EvictionPolicy::score_paper);
  const Rights rights{.who = Rights::flush};
  for (TierIndex t = 0; t + 1 < context.tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    if (!context.memory(t)) continue;
    for (const FlushQueue::Order* list : {&queue.forced(t), &queue.all(t)}) {
      const bool forced = list == &queue.forced(t);
      if (!forced && !ahead) continue;
      for (auto it = list->begin(); it != list->end();) {
        const FlushKey key = *it;
        Checkpoint& c = table[key.slot];
        const bool urgent = space.urgently_recalled(c, t);
        if (forced && context.retains() && !urgent) {  // in the order in which they were written
          ++it;
          continue;
        }
        if (c.flush_retry > context.now) {
          context.wake_by(c.flush_retry);
          ++it;
          continue;
        }
        Rights mine = rights;
        mine.distance = table.distance(c);
        mine.self = key.slot;
        mine.wanted = c.at[i].wanted;
        // Where it stays as well, its copy below costs nobody a read from a
        // file before its room is needed here.
        mine.costly = forced || !sparing || ready_ahead(t) < enough_ahead(c, t);
        if (urgent) {
          Rights demand{.who = Rights::demand, .self = key.slot};
          start_flush(key.slot, t, demand, context.now, 0);
          it = list->upper_bound(key);
          continue;
        }
        if (!start_flush(key.slot, t, mine, context.now, 0)) {
          if (context.machine.ephemeral || !transfers.room_for_more(t, context.below(t), MoveKind::flush)) break;
          it = list->upper_bound(key);  // a store that keeps sends what there is
                                        // room for, past what there is none for
          continue;
        }
        it = list->upper_bound(key);
      }
    }
  }
}

// Sends a replica one tier down, or farther where the next has no place for it.
// With a demand behind it, a tier that could make room is asked to (the
// deadline is inherited through all tiers).
bool Planner::State::start_flush(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  Checkpoint& c = table[slot];
  const bool demand = rights.who == Rights::demand;
  const bool wanted_there = c.flush_to > from;
  for (TierIndex t = context.below(from); t != kNoTier; t = context.below(t)) {
    const auto i = static_cast<std::size_t>(t);
    if (!space.fits(t, c.bytes) || c.at[i].state != ReplicaState::gone) continue;
    if (context.retains() && t == context.last_tier()) {  // in its turn
      durability.count(slot);                             // the time to try again may have come
      const Slot next = durability.next_to_file();
      if (next == kNoSlot && c.unfiled) durability.note_no_room(t);
      if (next != slot) {
        if (demand && next != kNoSlot && depth < context.tiers())
          hasten_flush(next, table.lowest(table[next]), rights, since, depth + 1);
        return false;
      }
    }
    // Someone waits for it at a file: straight there, without displacing
    // anything on the way.
    if (wanted_there && context.memory(t) && t < c.flush_to && space.free_bytes(t) < space.footprint(t, c.bytes))
      continue;
    if (!demand && !transfers.room_for_more(from, t, MoveKind::flush)) return false;
    Rights there = rights;
    there.down = true;
    there.self = slot;
    const Room room = look(t, c.bytes, there);
    if (!room.possible) {
      durability.note_no_room(t);
      if (rights.costly) continue;
      there.costly = true;
      if (const Room dear = look(t, c.bytes, there); dear.possible && all_later(t, dear, rights.distance)) return false;
      continue;  // farther than what is there
    }
    if (room.wait > 0) {
      urge(t, room, there, since, depth + 1);
      return false;
    }
    take(t, slot, room, ReplicaState::writing);
    const MoveIndex m = replicas.start_move(MoveKind::flush, slot, from, t, demand, since);
    transfers[m].forced = wanted_there;
    ++context.counters.flushes;
    return true;
  }
  return false;
}

}  // namespace ebb::policy
