// Who may take whose room. Evictable = complete, no uses, and another complete copy stays (or nobody wants it any more,
// in which case it is gone already). Beyond that, by the right in whose name room is asked for:
//   demand    a call that stands: anything evictable; else what a flush makes evictable soonest
//   flush     on its way down: what is safe and not wanted sooner than itself
//   prefetch  on its way up: what is needed later than itself; what would have to be read from a file again only for the
//             next few checkpoints, since each such displacement costs the slowest link once more
#include <algorithm>
#include <stdexcept>

#include "policy/state.hpp"

namespace ebb::policy {

Bytes Planner::State::free_bytes(TierIndex t) const {
  const auto i = static_cast<std::size_t>(t);
  return arenas[i].capacity() - (memory(t) ? arenas[i].used() : file_used[i]);
}

Time Planner::State::route_time(TierIndex from, TierIndex to, Bytes bytes) const {
  const Route& route = route_of(from, to);
  Time slowest = 0;
  for (int h = 0; h < route.hops; ++h)
    slowest = std::max(slowest, links[static_cast<std::size_t>(route.link[h])].estimate.time_for(bytes));
  return slowest;
}

// Until this replica's bytes are complete below; kNever: they cannot be.
Time Planner::State::flush_wait(const Checkpoint& c, TierIndex tier) const {
  for (MoveIndex i : c.moves) {
    const Move& m = moves[static_cast<std::size_t>(i)];
    if (m.kind == MoveKind::flush && m.from == tier && !m.cancelled)
      return std::max<Time>(1, route_time(m.from, m.to, m.total - m.done));
  }
  if (c.flush_retry > now) return kNever;
  Time wait = kNever;
  for (TierIndex t = below(tier); t != kNoTier; t = below(t)) {
    const Bytes size = footprint(t, c.bytes);
    if (size > arenas[static_cast<std::size_t>(t)].capacity()) continue;
    const Time here = route_time(tier, t, c.bytes);
    wait = wait == kNever ? here : std::max(wait, here);
    if (free_bytes(t) >= size) break;  // else that tier has to make room in its turn
  }
  return wait;
}

FragmentScore Planner::State::score(const Arena::Fragment& f, TierIndex tier, const Rights& rights) const {
  FragmentScore s;
  s.size = f.size;
  if (f.owner == Arena::kGap) {
    s.gap = true;
    return s;
  }
  const Checkpoint& c = checkpoints[f.owner];
  const Replica& r = c.at[static_cast<std::size_t>(tier)];
  s.touched = c.touched;
  s.written = c.written;
  s.distance = distance(c);
  const bool demand = rights.who == Rights::demand;
  Time busy = 0;  // until moves on it have ended
  bool flushing = false;
  if (!complete(r.state)) {
    if (!demand || r.filler == kNoMove) return s.never = true, s;
    const Move& m = moves[static_cast<std::size_t>(r.filler)];
    busy = std::max<Time>(1, route_time(m.from, m.to, m.total - m.done));
  } else if (r.uses > 0) {
    if (!demand) return s.never = true, s;
    std::uint16_t by_moves = 0;
    for (MoveIndex i : c.moves) {
      const Move& m = moves[static_cast<std::size_t>(i)];
      if (m.from != tier) continue;
      ++by_moves;
      flushing |= m.kind == MoveKind::flush && !m.cancelled;
      busy = std::max(busy, std::max<Time>(1, route_time(m.from, m.to, m.total - m.done)));
    }
    if (r.uses > by_moves) return s.never = true, s;  // borrowed or reserved
  }
  TierIndex next = kNoTier;  // the fastest complete copy below
  for (TierIndex t = below(tier); t != kNoTier && next == kNoTier; t = below(t))
    if (complete(c.at[static_cast<std::size_t>(t)].state)) next = t;
  bool kept_above = false;
  if (machine.ephemeral)
    for (TierIndex t = 0; t < tier; ++t) {
      const Replica& above = c.at[static_cast<std::size_t>(t)];
      kept_above |= complete(above.state) && above.wanted;
    }
  const bool evictable = next != kNoTier || kept_above;
  switch (rights.who) {
    case Rights::demand:
      if (!evictable && !flushing && !c.condemned) {
        const Time flush = flush_wait(c, tier);
        if (flush == kNever) return s.never = true, s;
        busy += flush;
      }
      s.wait = busy;
      break;
    case Rights::flush:
      s.never = !evictable || (r.wanted && !kept_above && s.distance <= rights.distance);
      break;
    case Rights::prefetch:
      if (kept_above) break;
      if (s.distance != FragmentScore::kUnhinted && s.distance <= rights.distance) {
        s.never = true;
      } else if (next != kNoTier) {
        s.never = !rights.costly && s.distance != FragmentScore::kUnhinted && !memory(next);
      } else if (rights.costly) {
        s.wait = flush_wait(c, tier);
        s.never = s.wait == kNever;
      } else {
        s.never = true;
      }
      break;
  }
  return s;
}

Room Planner::State::look(TierIndex tier, Bytes bytes, const Rights& rights) {
  const auto t = static_cast<std::size_t>(tier);
  const Bytes size = footprint(tier, bytes);
  Room room;
  if (size > arenas[t].capacity()) return room;
  if (!memory(tier)) {
    room.possible =
        free_bytes(tier) >= size || (rights.who == Rights::demand && !spare_in_file(tier, size, rights.self).empty());
    return room;
  }
  const auto fragments = arenas[t].fragments();
  if (free_bytes(tier) >= size) {
    const Bytes none = 0;
    Bytes smallest = none;
    for (std::size_t i = 0; i < fragments.size(); ++i)
      if (fragments[i].owner == Arena::kGap && fragments[i].size >= size &&
          (!room.possible || fragments[i].size < smallest)) {
        room = {true, 0, {i, i + 1, 0}};
        smallest = fragments[i].size;
      }
    if (room.possible) return room;
  }
  scratch.clear();
  for (const Arena::Fragment& f : fragments) scratch.push_back(score(f, tier, rights));
  if (const auto window = chooser.choose(scratch, size)) room = {true, window->wait, *window};
  return room;
}

void Planner::State::take(TierIndex tier, Slot slot, const Room& room, ReplicaState as) {
  const auto t = static_cast<std::size_t>(tier);
  const Bytes size = footprint(tier, checkpoints[slot].bytes);
  Replica& r = checkpoints[slot].at[t];
  if (memory(tier)) {
    std::vector<Slot> leaving;
    const auto fragments = arenas[t].fragments();
    for (std::size_t i = room.window.first; i < room.window.last; ++i)
      if (fragments[i].owner != Arena::kGap) leaving.push_back(fragments[i].owner);
    for (Slot s : leaving) {
      const Checkpoint& c = checkpoints[s];
      int copies = 0;
      for (const Replica& other : c.at) copies += complete(other.state);
      if (copies < 2) throw std::logic_error("eviction of the only copy");
      remove_replica(s, tier, true);
      try_release(s);
    }
    const auto offset = arenas[t].place(slot, size);
    if (!offset) throw std::logic_error("a window was too small");
    r.offset = *offset;
  } else {
    if (free_bytes(tier) < size)
      for (Slot s : spare_in_file(tier, size, slot)) remove_replica(s, tier, true);
    file_used[t] += size;
  }
  ++replicas[t];
  set_state(slot, tier, ReplicaState::init);
  set_state(slot, tier, as);
  dirty = true;
}

// Starts, or hastens, whatever makes this window evictable.
void Planner::State::urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth) {
  if (!memory(tier) || depth >= tiers()) return;
  std::vector<Slot> members;
  const auto fragments = arenas[static_cast<std::size_t>(tier)].fragments();
  for (std::size_t i = room.window.first; i < room.window.last; ++i)
    if (fragments[i].owner != Arena::kGap) members.push_back(fragments[i].owner);
  for (Slot s : members) {
    const Checkpoint& c = checkpoints[s];
    const Replica& r = c.at[static_cast<std::size_t>(tier)];
    if (r.filler != kNoMove && rights.who == Rights::demand) make_demand(r.filler, since);
    if (!complete(r.state) || lowest(c) > tier || c.condemned) continue;
    MoveIndex flush = kNoMove;
    for (MoveIndex i : c.moves)
      if (moves[static_cast<std::size_t>(i)].kind == MoveKind::flush) flush = i;
    if (flush == kNoMove) start_flush(s, tier, rights, since, depth);
    else if (rights.who == Rights::demand) make_demand(flush, since);
  }
}

// Copies in a full file tier of what is complete above (exclusive capacity) that together with what is free hold `size`.
std::vector<Slot> Planner::State::spare_in_file(TierIndex tier, Bytes size, Slot self) const {
  const auto t = static_cast<std::size_t>(tier);
  std::vector<Slot> spare;
  if (!machine.ephemeral) return spare;
  Bytes freed = free_bytes(tier);
  for (Slot s = 0; s < checkpoints.size() && freed < size; ++s) {
    const Checkpoint& c = checkpoints[s];
    if (!c.live || s == self || c.flush_to >= tier) continue;
    const Replica& r = c.at[t];
    if (!complete(r.state) || r.uses > 0 || fastest(c) >= tier) continue;
    spare.push_back(s);
    freed += footprint(tier, c.bytes);
  }
  if (freed < size) spare.clear();
  return spare;
}

}  // namespace ebb::policy
