// What goes down, and when. Flushes leave in eviction order (needed latest first), ahead of need while the program
// writes, on demand otherwise; a store that keeps its checkpoints flushes all of them.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

bool Planner::State::speculate() const {
  if (!machine.ephemeral) return true;
  for (const History& h : histories)
    if (h.last_write > 0 && !h.reading) return true;
  return false;
}

// What the next writes find on a memory tier: what is free, may go for nothing, or is on its way down.
Bytes Planner::State::ready_ahead(TierIndex tier) const {
  Bytes ready = free_bytes(tier) + spare_bytes[static_cast<std::size_t>(tier)];
  for (TierIndex to = below(tier); to != kNoTier; to = below(to))
    for (MoveIndex i : links[static_cast<std::size_t>(route_of(tier, to).link[0])].moves) {
      const Move& m = moves[static_cast<std::size_t>(i)];
      if (m.kind == MoveKind::flush && m.from == tier && m.to == to && !m.cancelled) ready += footprint(tier, m.total);
    }
  return ready;
}

// Room for one, and for those that are written while one is flushed.
Bytes Planner::State::enough_ahead(const Checkpoint& c, TierIndex tier) const {
  constexpr Time kMost = 8;
  const Time interval = histories[c.history].write_interval, flush = route_time(tier, below(tier), c.bytes);
  const Time written = interval > 0 ? std::min(kMost, flush / interval) : kMost;
  return footprint(tier, c.bytes) * static_cast<Bytes>(2 + written);
}

// Whether all that would have to go is needed later than what is `than` away.
bool Planner::State::all_later(TierIndex tier, const Room& room, std::int64_t than) const {
  const auto fragments = maps[static_cast<std::size_t>(tier)].fragments();
  for (std::size_t i = room.window.first; i < room.window.last; ++i)
    if (fragments[i].owner != FragmentMap::kGap && distance(checkpoints[fragments[i].owner]) <= than) return false;
  return true;
}

void Planner::State::schedule_flushes() {
  const bool ahead = speculate();
  // A store that keeps must get everything down; rules of recency do not say what is needed later.
  const bool sparing = machine.ephemeral &&
                       (machine.eviction == EvictionPolicy::score || machine.eviction == EvictionPolicy::score_paper);
  const Rights rights{.who = Rights::flush};
  for (TierIndex t = 0; t + 1 < tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    if (!memory(t)) continue;
    for (auto* list : {&forced[i], &flushable[i]}) {
      if (list == &flushable[i] && !ahead) continue;
      for (auto it = list->begin(); it != list->end();) {
        const FlushKey key = *it;
        Checkpoint& c = checkpoints[key.slot];
        const bool urgent = urgently_recalled(c, t);
        if (list == &forced[i] && retains() && !urgent) {  // in the order in which they were written
          ++it;
          continue;
        }
        if (c.flush_retry > now) {
          wakeup = std::min(wakeup, c.flush_retry);
          ++it;
          continue;
        }
        Rights mine = rights;
        mine.distance = distance(c);
        mine.self = key.slot;
        mine.wanted = c.at[i].wanted;
        // Where it stays as well, its copy below costs nobody a read from a file before its room is needed here.
        mine.costly = list == &forced[i] || !sparing || ready_ahead(t) < enough_ahead(c, t);
        if (urgent) {
          Rights demand{.who = Rights::demand, .self = key.slot};
          start_flush(key.slot, t, demand, now, 0);
          it = list->upper_bound(key);
          continue;
        }
        if (!start_flush(key.slot, t, mine, now, 0)) {
          if (machine.ephemeral || !room_for_more(t, below(t), MoveKind::flush)) break;
          it = list->upper_bound(key);  // a store that keeps sends what there is room for, past what there is none for
          continue;
        }
        it = list->upper_bound(key);
      }
    }
  }
}

// Sends a replica one tier down, or farther where the next has no place for it. With a demand behind it, a tier that
// could make room is asked to (the deadline is inherited through all tiers).
bool Planner::State::start_flush(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  Checkpoint& c = checkpoints[slot];
  const bool demand = rights.who == Rights::demand;
  const bool wanted_there = c.flush_to > from;
  for (TierIndex t = below(from); t != kNoTier; t = below(t)) {
    const auto i = static_cast<std::size_t>(t);
    if (footprint(t, c.bytes) > maps[i].largest_segment() || c.at[i].state != ReplicaState::gone) continue;
    if (retains() && t == tiers() - 1) {  // in its turn
      count_kept(slot);                   // the time to try again may have come
      const Slot next = next_to_file();
      if (next == kNoSlot && c.unfiled) no_room_yet(t);
      if (next != slot) {
        if (demand && next != kNoSlot && depth < tiers())
          hasten_flush(next, lowest(checkpoints[next]), rights, since, depth + 1);
        return false;
      }
    }
    // Someone waits for it at a file: straight there, without displacing anything on the way.
    if (wanted_there && memory(t) && t < c.flush_to && free_bytes(t) < footprint(t, c.bytes)) continue;
    if (!demand && !room_for_more(from, t, MoveKind::flush)) return false;
    Rights there = rights;
    there.down = true;
    there.self = slot;
    const Room room = look(t, c.bytes, there);
    if (!room.possible) {
      no_room_yet(t);
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
    const MoveIndex m = start_move(MoveKind::flush, slot, from, t, 0, demand, since);
    moves[static_cast<std::size_t>(m)].forced = wanted_there;
    ++counters.flushes;
    return true;
  }
  return false;
}

}  // namespace ebb::policy
