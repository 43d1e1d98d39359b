#include "planner/room.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::planner {

Room RoomFinder::look(TierIndex tier, Bytes bytes, const Rights& rights) {
  const Bytes size = space_.footprint(tier, bytes);
  Room room;
  if (size > space_.map(tier).largest_segment()) return room;
  if (!context_.memory(tier)) {
    room.possible = space_.free_bytes(tier) >= size ||
                    (rights.who == Rights::demand && !rights.down && !spare_in_file(tier, size, rights.self).empty());
    room.full = !room.possible;
    return room;
  }
  if (space_.map(tier).largest_gap() >= size) {
    room.possible = true;
    return room;
  }
  // Only a demand, or a costly prefetch, may have something flushed; others need room that is free or costs nothing.
  const bool may_wait = rights.who == Rights::demand || (rights.who == Rights::prefetch && rights.costly);
  if (!may_wait && space_.free_bytes(tier) + space_.spare_bytes(tier) < size) {
    room.full = true;
    return room;
  }
  if (const auto first = look_first(tier, size, rights)) return *first;
  scratch_.clear();
  for (const FragmentMap::Fragment& f : space_.map(tier).fragments()) scratch_.push_back(score(f, tier, rights));
  if (const auto window = chooser_.choose(scratch_, size)) room = {true, false, window->wait, *window};
  return room;
}

void RoomFinder::take(TierIndex tier, Slot slot, const Room& room, ReplicaState as) {
  const Bytes size = space_.footprint(tier, table_[slot].bytes);
  if (context_.memory(tier)) {
    std::vector<Slot> leaving;
    const auto fragments = space_.map(tier).fragments();
    for (std::size_t i = room.window.first; i < room.window.last; ++i)
      if (fragments[i].owner != FragmentMap::kGap) leaving.push_back(fragments[i].owner);
    for (Slot s : leaving) {
      const Checkpoint& c = table_[s];
      int copies = 0;
      for (const Replica& other : c.at) copies += complete(other.state);
      if (copies < 2) throw std::logic_error("eviction of the only copy");
      replicas_.remove(s, tier, true);
      replicas_.try_release(s);
    }
  } else if (space_.free_bytes(tier) < size) {
    for (Slot s : spare_in_file(tier, size, slot)) replicas_.remove(s, tier, true);
  }
  replicas_.enter(slot, tier, as);
  context_.dirty = true;
}

// The time until this replica's bytes are complete below; kNever: they cannot be.
Time RoomFinder::flush_wait(const Checkpoint& c, TierIndex tier) const {
  for (MoveIndex i : c.moves) {
    const Move& m = transfers_[i];
    if (m.kind == MoveKind::flush && m.from == tier && !m.cancelled) return transfers_.time_left(m);
  }
  if (c.flush_retry > context_.now) return kNever;
  Time wait = kNever;
  for (TierIndex t = context_.below(tier); t != kNoTier; t = context_.below(t)) {
    const Bytes size = space_.footprint(t, c.bytes);
    if (size > space_.map(t).largest_segment()) continue;
    const Time here = std::max<Time>(1, transfers_.route_time(tier, t, c.bytes));  // 0: it may go now
    wait = wait == kNever ? here : std::max(wait, here);
    if (space_.free_bytes(t) >= size) break;  // else that tier has to make room in its turn
  }
  return wait;
}

FragmentScore RoomFinder::score(const FragmentMap::Fragment& f, TierIndex tier, const Rights& rights) const {
  FragmentScore s;
  const FragmentMap& map = space_.map(tier);
  s.size = map.usable(f);
  s.border = f.offset == map.first_of(map.segment_of(f.offset));
  s.never = s.size == 0;  // beyond the end of its segment
  if (s.never) return s;
  if (f.owner == FragmentMap::kGap) {
    s.gap = true;
    return s;
  }
  const Checkpoint& c = table_[f.owner];
  const Replica& r = c.at[tier];
  s.touched = c.touched;
  s.written = c.written;
  s.distance = table_.distance(c);
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
bool RoomFinder::may_take(const Checkpoint& c, const Replica& r, const Rights& rights) const {
  if (r.uses > 0) return false;
  const std::int64_t away = table_.distance(c);
  const bool later = away > rights.distance;
  // Not for one that goes down to make room for this one: two of them would displace each other without end.
  if (r.spare == Spare::wanted_above && rights.down)
    return rights.who != Rights::demand && !rights.wanted &&
           away < std::min(rights.distance, table_.distance(table_[rights.self]));
  if (rights.who == Rights::demand || r.spare == Spare::wanted_above) return true;
  if (rights.who == Rights::flush) {
    if (!rights.costly && r.spare == Spare::file_below && away != FragmentScore::kUnhinted) return false;
    return !r.wanted || (later && !rights.wanted);
  }
  if (away == FragmentScore::kUnhinted) return true;
  return later && (rights.costly || r.spare == Spare::memory_below);
}

// The time until a call that waits may have this replica's room; kNever: it depends on the application.
Time RoomFinder::demand_wait(const Checkpoint& c, const Replica& r, TierIndex tier) const {
  if (r.uses == 0 && r.spare != Spare::no) return 0;
  Time busy = 0;  // until the moves on it have ended
  bool flushing = false;
  if (!complete(r.state)) {
    if (r.filler == kNoMove) return kNever;
    const Move& m = transfers_[r.filler];
    busy = transfers_.time_left(m);
  } else if (r.uses > 0) {
    std::uint16_t by_moves = 0;
    for (MoveIndex i : c.moves) {
      const Move& m = transfers_[i];
      if (m.from != tier) continue;
      ++by_moves;
      flushing |= m.kind == MoveKind::flush && !m.cancelled;
      busy = std::max(busy, transfers_.time_left(m));
    }
    if (r.uses > by_moves) return kNever;  // borrowed or reserved
  }
  if (c.pending_delete) return busy > 0 ? busy : kNever;  // it goes with its last reader
  if (r.spare != Spare::no || flushing) return busy;
  const Time flush = flush_wait(c, tier);
  return flush == kNever ? kNever : busy + flush;
}

// The bytes that are free once a replica has left.
Bytes RoomFinder::room_of(const Checkpoint& c, TierIndex tier) const {
  return space_.map(tier).usable({c.at[tier].offset, space_.footprint(tier, c.bytes), 0});
}

// The answer of `score` without a scan, where one replica alone decides it: the first of the spare ones, if it holds
// `size`, since every window has a member that is not less worth; with nothing spare, the flush that ends first. Not
// possible where a prefetch may take spare ones alone, and the first that is unused is needed no later than itself.
// nullopt: it takes a scan.
std::optional<Room> RoomFinder::look_first(TierIndex tier, Bytes size, const Rights& rights) const {
  if (context_.machine.eviction != EvictionPolicy::score) return std::nullopt;
  int orders = 0;  // positions of different histories do not compare
  if (table_.histories().size() > 8) return std::nullopt;
  for (const History& h : table_.histories()) orders += h.order.size() > 0;
  if (orders > 1) return std::nullopt;
  for (const SpareKey& key : space_.spares(tier)) {
    const Checkpoint& c = table_[key.slot];
    const Replica& r = c.at[tier];
    if (r.uses > 0) continue;
    if (!may_take(c, r, rights)) {
      if (r.spare == Spare::wanted_above) return std::nullopt;
      if (rights.who == Rights::prefetch && !rights.costly && table_.distance(c) <= rights.distance) return Room{};
      break;
    }
    if (room_of(c, tier) < size) return std::nullopt;
    return alone(tier, key.slot, 0);
  }
  if (rights.who != Rights::demand || !space_.spares(tier).empty()) return std::nullopt;
  Time soonest = kNever;
  Slot slot = kNoSlot;
  for (const Link& link : transfers_.links())
    for (MoveIndex i : link.moves) {
      const Move& m = transfers_[i];
      if (m.kind != MoveKind::flush || m.from != tier || m.cancelled) continue;
      const Checkpoint& c = table_[m.checkpoint];
      if (c.at[tier].uses != 1 || room_of(c, tier) < size) continue;
      const Time wait = transfers_.time_left(m);
      if (wait < soonest) soonest = wait, slot = m.checkpoint;
    }
  if (slot == kNoSlot) return std::nullopt;
  return alone(tier, slot, soonest);
}

Room RoomFinder::alone(TierIndex tier, Slot slot, Time wait) const {
  const std::size_t i = space_.map(tier).index_of(table_[slot].at[tier].offset);
  return {true, false, wait, {i, i + 1, wait}};
}

// Copies in a full file tier of what is complete above (exclusive capacity) that together with what is free hold
// `size`.
std::vector<Slot> RoomFinder::spare_in_file(TierIndex tier, Bytes size, Slot self) const {
  std::vector<Slot> spare;
  if (!context_.machine.ephemeral) return spare;
  Bytes freed = space_.free_bytes(tier);
  for (Slot s = 0; s < table_.size() && freed < size; ++s) {
    const Checkpoint& c = table_[s];
    if (!c.live || s == self || c.flush_to >= tier) continue;
    const Replica& r = c.at[tier];
    if (!complete(r.state) || r.uses > 0 || table_.fastest(c) >= tier) continue;
    spare.push_back(s);
    freed += space_.footprint(tier, c.bytes);
  }
  if (freed < size) spare.clear();
  return spare;
}

}  // namespace ebb::planner
