// Who may take whose room. Evictable = complete, no uses, and another complete
// copy stays (or nobody wants it any more, in which case it is gone already).
// Beyond that, by the right in whose name room is asked for:
//   demand    a call that stands: anything evictable; else what a flush makes
//   evictable soonest flush     on its way down: what is safe and not wanted
//   sooner than itself; what would have to be read from a file again
//             only while its own tier has little room for the next writes
//   prefetch  on its way up: what is needed later than itself; what would have
//   to be read from a file again only for the
//             next few checkpoints, since each such displacement costs the
//             slowest link once more
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

// Until this replica's bytes are complete below; kNever: they cannot be.
Time Planner::State::flush_wait(const Checkpoint& c, TierIndex tier) const {
  for (MoveIndex i : c.moves) {
    const Move& m = transfers[i];
    if (m.kind == MoveKind::flush && m.from == tier && !m.cancelled)
      return std::max<Time>(1, transfers.route_time(m.from, m.to, m.total - m.done));
  }
  if (c.flush_retry > context.now) return kNever;
  Time wait = kNever;
  for (TierIndex t = context.below(tier); t != kNoTier; t = context.below(t)) {
    const Bytes size = space.footprint(t, c.bytes);
    if (size > space.map(t).largest_segment()) continue;
    const Time here = transfers.route_time(tier, t, c.bytes);
    wait = wait == kNever ? here : std::max(wait, here);
    if (space.free_bytes(t) >= size) break;  // else that tier has to make room in its turn
  }
  return wait;
}

FragmentScore Planner::State::score(const FragmentMap::Fragment& f, TierIndex tier, const Rights& rights) const {
  FragmentScore s;
  const FragmentMap& map = space.map(tier);
  s.size = map.usable(f);
  s.border = f.offset == map.first_of(map.segment_of(f.offset));
  s.never = s.size == 0;  // beyond the end of its segment
  if (s.never) return s;
  if (f.owner == FragmentMap::kGap) {
    s.gap = true;
    return s;
  }
  const Checkpoint& c = table[f.owner];
  const Replica& r = c.at[static_cast<std::size_t>(tier)];
  s.touched = c.touched;
  s.written = c.written;
  s.distance = table.distance(c);
  if (r.spare == Spare::wanted_above) {  // its loss costs nothing
    s.distance = FragmentScore::kUnhinted;
    s.touched = 0;
  }
  if (rights.who == Rights::demand) {
    s.wait = r.spare != Spare::no && r.uses == 0 && !may_take(c, r, rights) ? kNever : demand_wait(c, r, tier);
  } else if (r.spare != Spare::no) {
    s.wait = may_take(c, r, rights) ? 0 : kNever;
  } else {
    const bool later = s.distance == FragmentScore::kUnhinted || s.distance > rights.distance;
    const bool worth_a_flush = rights.who == Rights::prefetch && rights.costly && later;
    s.wait = worth_a_flush && r.uses == 0 && complete(r.state) ? flush_wait(c, tier) : kNever;
  }
  s.never = s.wait == kNever;
  return s;
}

// Whether these rights take a spare replica.
bool Planner::State::may_take(const Checkpoint& c, const Replica& r, const Rights& rights) const {
  if (r.uses > 0) return false;
  const std::int64_t away = table.distance(c);
  const bool later = away > rights.distance;
  // Below what goes down in somebody else's name as well: two of them would
  // displace each other for ever.
  if (r.spare == Spare::wanted_above && rights.down)
    return rights.who != Rights::demand && !rights.wanted &&
           away < std::min(rights.distance, table.distance(table[rights.self]));
  if (rights.who == Rights::demand || r.spare == Spare::wanted_above) return true;
  if (rights.who == Rights::flush) {
    if (!rights.costly && r.spare == Spare::file_below && away != FragmentScore::kUnhinted) return false;
    return !r.wanted || (later && !rights.wanted);
  }
  if (away == FragmentScore::kUnhinted) return true;
  return later && (rights.costly || r.spare == Spare::memory_below);
}

// Until a call that stands may have this replica's room; kNever: as long as the
// application likes.
Time Planner::State::demand_wait(const Checkpoint& c, const Replica& r, TierIndex tier) const {
  if (r.uses == 0 && r.spare != Spare::no) return 0;
  Time busy = 0;  // until the moves on it have ended
  bool flushing = false;
  if (!complete(r.state)) {
    if (r.filler == kNoMove) return kNever;
    const Move& m = transfers[r.filler];
    busy = std::max<Time>(1, transfers.route_time(m.from, m.to, m.total - m.done));
  } else if (r.uses > 0) {
    std::uint16_t by_moves = 0;
    for (MoveIndex i : c.moves) {
      const Move& m = transfers[i];
      if (m.from != tier) continue;
      ++by_moves;
      flushing |= m.kind == MoveKind::flush && !m.cancelled;
      busy = std::max(busy, std::max<Time>(1, transfers.route_time(m.from, m.to, m.total - m.done)));
    }
    if (r.uses > by_moves) return kNever;  // borrowed or reserved
  }
  if (c.condemned) return busy > 0 ? busy : kNever;  // it goes with its last reader
  if (r.spare != Spare::no || flushing) return busy;
  const Time flush = flush_wait(c, tier);
  return flush == kNever ? kNever : busy + flush;
}

Room Planner::State::look(TierIndex tier, Bytes bytes, const Rights& rights) {
  const Bytes size = space.footprint(tier, bytes);
  Room room;
  if (size > space.map(tier).largest_segment()) return room;
  if (!context.memory(tier)) {
    room.possible = space.free_bytes(tier) >= size ||
                    (rights.who == Rights::demand && !rights.down && !spare_in_file(tier, size, rights.self).empty());
    return room;
  }
  if (space.map(tier).largest_gap() >= size) {
    room.possible = true;
    return room;
  }
  // What goes for nothing would have to hold it; a demand, or a costly
  // prefetch, may also have something flushed.
  const bool may_wait = rights.who == Rights::demand || (rights.who == Rights::prefetch && rights.costly);
  if (!may_wait && space.free_bytes(tier) + space.spare_bytes(tier) < size) return room;
  if (const auto first = look_first(tier, size, rights)) return *first;
  scratch.clear();
  for (const FragmentMap::Fragment& f : space.map(tier).fragments()) scratch.push_back(score(f, tier, rights));
  if (const auto window = chooser.choose(scratch, size)) room = {true, window->wait, *window};
  return room;
}

// What its leaving would give.
Bytes Planner::State::room_of(const Checkpoint& c, TierIndex tier) const {
  const auto t = static_cast<std::size_t>(tier);
  return space.map(tier).usable({c.at[t].offset, space.footprint(tier, c.bytes), 0});
}

// The answer of `score` without a scan, where one replica alone decides it: the
// first of the spare ones, if it holds `size`, since every window has a member
// that is not less worth; with nothing spare, the flush that ends first. Not
// possible where a prefetch may take spare ones alone, and the first that is
// unused is needed no later than itself. nullopt: it takes a scan.
std::optional<Room> Planner::State::look_first(TierIndex tier, Bytes size, const Rights& rights) const {
  if (context.machine.eviction != EvictionPolicy::score) return std::nullopt;
  int orders = 0;  // positions of different histories do not compare
  if (table.histories().size() > 8) return std::nullopt;
  for (const History& h : table.histories()) orders += h.order.size() > 0;
  if (orders > 1) return std::nullopt;
  const auto t = static_cast<std::size_t>(tier);
  for (const SpareKey& key : space.spares(tier)) {
    const Checkpoint& c = table[key.slot];
    const Replica& r = c.at[t];
    if (r.uses > 0) continue;
    if (!may_take(c, r, rights)) {
      if (r.spare == Spare::wanted_above) return std::nullopt;
      if (rights.who == Rights::prefetch && !rights.costly && table.distance(c) <= rights.distance) return Room{};
      break;
    }
    if (room_of(c, tier) < size) return std::nullopt;
    return alone(tier, key.slot, 0);
  }
  if (rights.who != Rights::demand || !space.spares(tier).empty()) return std::nullopt;
  Time soonest = kNever;
  Slot slot = kNoSlot;
  for (const Link& link : transfers.links())
    for (MoveIndex i : link.moves) {
      const Move& m = transfers[i];
      if (m.kind != MoveKind::flush || m.from != tier || m.cancelled) continue;
      const Checkpoint& c = table[m.checkpoint];
      if (c.at[t].uses != 1 || room_of(c, tier) < size) continue;
      const Time wait = std::max<Time>(1, transfers.route_time(m.from, m.to, m.total - m.done));
      if (wait < soonest) soonest = wait, slot = m.checkpoint;
    }
  if (slot == kNoSlot) return std::nullopt;
  return alone(tier, slot, soonest);
}

Room Planner::State::alone(TierIndex tier, Slot slot, Time wait) const {
  const auto t = static_cast<std::size_t>(tier);
  const std::size_t i = space.map(tier).index_of(table[slot].at[t].offset);
  return {true, wait, {i, i + 1, wait}};
}

void Planner::State::take(TierIndex tier, Slot slot, const Room& room, ReplicaState as) {
  const Bytes size = space.footprint(tier, table[slot].bytes);
  if (context.memory(tier)) {
    std::vector<Slot> leaving;
    const auto fragments = space.map(tier).fragments();
    for (std::size_t i = room.window.first; i < room.window.last; ++i)
      if (fragments[i].owner != FragmentMap::kGap) leaving.push_back(fragments[i].owner);
    for (Slot s : leaving) {
      const Checkpoint& c = table[s];
      int copies = 0;
      for (const Replica& other : c.at) copies += complete(other.state);
      if (copies < 2) throw std::logic_error("eviction of the only copy");
      replicas.remove(s, tier, true);
      replicas.try_release(s);
    }
  } else if (space.free_bytes(tier) < size) {
    for (Slot s : spare_in_file(tier, size, slot)) replicas.remove(s, tier, true);
  }
  replicas.enter(slot, tier, as);
  context.dirty = true;
}

// Starts, or hastens, whatever makes this window evictable.
void Planner::State::urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth) {
  if (!context.memory(tier) || depth >= context.tiers()) return;
  std::vector<Slot> members;
  const auto fragments = space.map(tier).fragments();
  for (std::size_t i = room.window.first; i < room.window.last; ++i)
    if (fragments[i].owner != FragmentMap::kGap) members.push_back(fragments[i].owner);
  for (Slot s : members) {
    const Checkpoint& c = table[s];
    const Replica& r = c.at[static_cast<std::size_t>(tier)];
    if (r.filler != kNoMove && rights.who == Rights::demand) transfers.make_demand(r.filler, since);
    if (!complete(r.state) || table.lowest(c) > tier || c.condemned) continue;
    hasten_flush(s, tier, rights, since, depth);
  }
}

void Planner::State::hasten_flush(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  MoveIndex flush = kNoMove;
  for (MoveIndex i : table[slot].moves)
    if (transfers[i].kind == MoveKind::flush) flush = i;
  if (flush == kNoMove)
    start_flush(slot, from, rights, since, depth);
  else if (rights.who == Rights::demand)
    transfers.make_demand(flush, since);
}

// Copies in a full file tier of what is complete above (exclusive capacity)
// that together with what is free hold `size`.
std::vector<Slot> Planner::State::spare_in_file(TierIndex tier, Bytes size, Slot self) const {
  const auto t = static_cast<std::size_t>(tier);
  std::vector<Slot> spare;
  if (!context.machine.ephemeral) return spare;
  Bytes freed = space.free_bytes(tier);
  for (Slot s = 0; s < table.size() && freed < size; ++s) {
    const Checkpoint& c = table[s];
    if (!c.live || s == self || c.flush_to >= tier) continue;
    const Replica& r = c.at[t];
    if (!complete(r.state) || r.uses > 0 || table.fastest(c) >= tier) continue;
    spare.push_back(s);
    freed += space.footprint(tier, c.bytes);
  }
  if (freed < size) spare.clear();
  return spare;
}

}  // namespace ebb::policy
