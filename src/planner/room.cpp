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
  if (spares_in_order()) {
    if (const auto first = look_first(tier, size, rights)) return *first;
    if (const auto now = join_spares(tier, size, rights)) return *now;
    if (!may_wait) return room;
    if (const auto soon = near_flushes(tier, size, rights)) return *soon;
  }
  return search(tier, size, rights).value_or(room);
}

void RoomFinder::take(TierIndex tier, Slot slot, const Room& room, ReplicaState as) {
  const Bytes size = space_.footprint(tier, table_[slot].bytes);
  if (context_.memory(tier)) {
    Bytes at = room.begin;
    for (Slot s; (s = space_.map(tier).next_owner(at, room.end)) != kNoSlot;) evict(s, tier);
  } else if (space_.free_bytes(tier) < size) {
    for (Slot s : spare_in_file(tier, size, slot)) replicas_.remove(s, tier, true);
  }
  replicas_.enter(slot, tier, as);
  context_.dirty = true;
}

bool RoomFinder::adopt(Slot slot, Bytes place) {
  const Bytes size = space_.footprint(0, table_[slot].bytes);
  if (size > space_.adoptable(0)) return false;
  Bytes left = space_.adoptable(0) - space_.adopted(0);
  std::vector<Slot> leaving;
  for (const SpareKey& key : space_.adopted_spares(0)) {
    if (left >= size) break;
    if (table_[key.slot].at[0].uses > 0) continue;
    leaving.push_back(key.slot);
    left += space_.footprint(0, table_[key.slot].bytes);
  }
  if (left < size) return false;
  for (const Slot s : leaving) evict(s, 0);
  replicas_.adopt(slot, place);
  context_.dirty = true;
  return true;
}

void RoomFinder::evict(Slot slot, TierIndex tier) {
  int copies = 0;
  for (const Replica& other : table_[slot].at) copies += complete(other.state);
  if (copies < 2) throw std::logic_error("eviction of the only copy");
  replicas_.remove(slot, tier, true);
  replicas_.try_release(slot);
}

// The time until this replica's bytes are complete below; kNever: they cannot be.
Time RoomFinder::flush_wait(const Checkpoint& c, TierIndex tier) const {
  Time left = 0;
  for (MoveIndex i : c.moves) {
    const Move& m = transfers_[i];
    if (m.kind == MoveKind::flush && m.from == tier && !m.cancelled) left = std::max(left, transfers_.time_left(m));
  }
  if (left > 0) return left;
  if (c.flush_retry > context_.now) return kNever;
  if (tier == c.split.on && !space_.place_beyond(c, c.split.rest))
    return std::max<Time>(1, links_.time(tier, c.split.rest, c.split.head));
  Time wait = kNever;
  for (TierIndex t = context_.below(tier); t != kNoTier; t = context_.below(t)) {
    if (tier == c.split.on && t == c.split.rest) continue;  // it is recalled, and the rest is in it
    const Bytes size = space_.footprint(t, c.bytes);
    if (size > space_.map(t).largest_segment()) continue;
    const Time here = std::max<Time>(1, links_.time(tier, t, c.bytes));  // 0: it may go now
    wait = wait == kNever ? here : std::max(wait, here);
    if (space_.free_bytes(t) >= size) break;  // else that tier has to make room in its turn
  }
  return wait;
}

FragmentScore RoomFinder::score(const FragmentMap::Fragment& f, TierIndex tier, const Rights& rights) const {
  FragmentScore s;
  const FragmentMap& map = space_.map(tier);
  s.size = map.usable(f), s.offset = f.offset;
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
  // Nor the copy on another tier of what makes way: it would be flushed again, and take the room of what came in its
  // place.
  const bool makes_way_elsewhere = c.makes_way != kNoTier && &r != &c.at[c.makes_way];
  if (r.spare == Spare::wanted_above && rights.who == Rights::prefetch && makes_way_elsewhere) return false;
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
    if (r.filler != kNoMove)
      busy = transfers_.time_left(transfers_[r.filler]);
    else if (c.rest_on(tier) && !c.splitting())
      busy = flush_wait(c, c.split.on);
    else
      return kNever;
    if (busy == kNever) return kNever;
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
  if (c.nameless()) return busy > 0 ? busy : kNever;  // it goes with its last reader
  if (r.spare != Spare::no || flushing) return busy;
  const Time flush = flush_wait(c, tier);
  return flush == kNever ? kNever : busy + flush;
}

// Whether `size` has a place where a replica is, once that has left.
bool RoomFinder::would_hold(const Checkpoint& c, TierIndex tier, Bytes size) const {
  const FragmentMap& map = space_.map(tier);
  const Bytes offset = c.at[tier].offset;
  return map.holds(offset, map.usable({offset, space_.footprint(tier, c.bytes_on(tier)), 0}), size);
}

// Whether the order of spare replicas is that in which `score` prefers them.
bool RoomFinder::spares_in_order() const {
  if (context_.machine.eviction != EvictionPolicy::score) return false;
  int orders = 0;  // positions of different histories do not compare
  if (table_.histories().size() > 8) return false;
  for (const History& h : table_.histories()) orders += h.order.size() > 0;
  return orders <= 1;
}

// The answer of `score` without a scan, where one replica alone decides it: the first of the spare ones, if it holds
// `size`, since every window has a member that is not less worth; with nothing spare, the flush that ends first. Not
// possible where a prefetch may take spare ones alone, and the first that is unused is needed no later than itself.
// nullopt: it takes a scan.
std::optional<Room> RoomFinder::look_first(TierIndex tier, Bytes size, const Rights& rights) const {
  for (const SpareKey& key : space_.spares(tier)) {
    const Checkpoint& c = table_[key.slot];
    const Replica& r = c.at[tier];
    if (r.uses > 0) continue;
    if (!may_take(c, r, rights)) {
      if (r.spare == Spare::wanted_above) return std::nullopt;
      if (rights.who == Rights::prefetch && !rights.costly && table_.distance(c) <= rights.distance) return Room{};
      break;
    }
    if (!would_hold(c, tier, size)) return std::nullopt;
    return Room{.possible = true, .begin = r.offset, .end = r.offset + 1};
  }
  if (rights.who != Rights::demand || !space_.spares(tier).empty()) return std::nullopt;
  Time soonest = kNever;
  Slot slot = kNoSlot;
  for (const Link& link : links_.all())
    for (MoveIndex i : link.moves) {
      const Move& m = transfers_[i];
      if (m.kind != MoveKind::flush || m.from != tier || m.cancelled) continue;
      const Checkpoint& c = table_[m.checkpoint];
      if (c.at[tier].uses != 1 || adopted(c.at[tier]) || !would_hold(c, tier, size)) continue;
      const Time wait = transfers_.time_left(m);
      if (wait < soonest) soonest = wait, slot = m.checkpoint;
    }
  if (slot == kNoSlot) return std::nullopt;
  const Bytes offset = table_[slot].at[tier].offset;
  return Room{.possible = true, .wait = soonest, .begin = offset, .end = offset + 1};
}

// The best window of spare replicas and gaps. They join in the order in which they are to go; the first by which a run
// of neighbours holds `size` is the worst of every best window, so the search is for one in that run.
std::optional<Room> RoomFinder::join_spares(TierIndex tier, Bytes size, const Rights& rights) {
  const FragmentMap& map = space_.map(tier);
  bool memory_below = false;
  for (TierIndex t = context_.below(tier); t != kNoTier; t = context_.below(t)) memory_below |= context_.memory(t);
  const bool costly = rights.who == Rights::demand || rights.costly || memory_below;
  const SpareKey* worst = nullptr;
  Run best{};
  for (const SpareKey& key : space_.spares(tier)) {
    if (worst != nullptr && (key.nearness != worst->nearness || key.touched != worst->touched)) break;
    const Checkpoint& c = table_[key.slot];
    if (!may_take(c, c.at[tier], rights)) {
      if (!costly && key.nearness != INT64_MIN) break;  // nor any that a hint names
      continue;
    }
    const Bytes offset = c.at[tier].offset;
    if (worst != nullptr && offset >= best.begin->first) continue;
    const auto joins = [&](const FragmentMap::Fragment& f) {
      if (f.owner == FragmentMap::kGap) return true;
      const Checkpoint& other = table_[f.owner];
      const SpareKey its = spare_key(other.at[tier].spare, other.spare_key);
      return other.at[tier].spare != Spare::no &&
             (its.nearness < key.nearness || (its.nearness == key.nearness && its.touched <= key.touched)) &&
             may_take(other, other.at[tier], rights);
    };
    const Run run = run_around(tier, map.find(offset), kNever, joins);
    if (run.bytes == 0 || !map.holds(run.begin->first, run.bytes, size)) continue;
    worst = &key;
    best = run;
  }
  if (worst == nullptr) return std::nullopt;
  scores_.clear(), places_.clear();
  put(best, tier, rights);
  return best_of_put(tier, size);
}

// Of what has to be flushed: a window beside a flush under way, or beside what leaves next. Only of many fragments, of
// which a search takes too long.
std::optional<Room> RoomFinder::near_flushes(TierIndex tier, Bytes size, const Rights& rights) {
  constexpr std::size_t kSearched = 1024;
  constexpr int kOfEach = 16;
  const FragmentMap& map = space_.map(tier);
  if (map.fragments().size() <= kSearched) return std::nullopt;
  scores_.clear(), places_.clear();
  std::vector<std::pair<Bytes, Bytes>> runs;
  const auto look_around = [&](Slot slot) {
    if (adopted(table_[slot].at[tier])) return;
    const FragmentAt at = map.find(table_[slot].at[tier].offset);
    const auto has = [&](const auto& run) { return run.first <= at->first && at->first < run.second; };
    if (scores_.size() >= kSearched || std::ranges::any_of(runs, has)) return;
    const auto joins = [&](const FragmentMap::Fragment& f) { return !score(f, tier, rights).never; };
    const Run run = run_around(tier, at, size + 2 * (map.granule() - map.grain()), joins);
    if (run.bytes == 0 || !map.holds(run.begin->first, run.bytes, size)) return;
    runs.emplace_back(run.begin->first, std::prev(run.end)->first + 1);
    put(run, tier, rights);
  };
  int left = kOfEach;
  for (const Link& link : links_.all())
    for (MoveIndex i : link.moves) {
      const Move& m = transfers_[i];
      if (m.kind == MoveKind::flush && m.from == tier && !m.cancelled && left-- > 0) look_around(m.checkpoint);
    }
  const FlushKey* key = queue_.next(tier, false, nullptr, {});
  for (left = kOfEach; key != nullptr && left > 0; --left, key = queue_.next(tier, false, key, {}))
    look_around(key->slot);
  return best_of_put(tier, size);
}

std::optional<Room> RoomFinder::search(TierIndex tier, Bytes size, const Rights& rights) {
  scores_.clear(), places_.clear();
  const FragmentMap::Fragments& all = space_.map(tier).fragments();
  put({all.begin(), all.end()}, tier, rights);
  return best_of_put(tier, size);
}

// The fragment with those at its sides that join it: on each side no more than hold `enough`.
template <class Joins>
RoomFinder::Run RoomFinder::run_around(TierIndex tier, FragmentAt at, Bytes enough, const Joins& joins) const {
  const FragmentMap& map = space_.map(tier);
  const auto border = [&](FragmentAt p) { return p->first == map.first_of(map.segment_of(p->first)); };
  Run run{at, std::next(at), map.usable(at->second)};
  if (run.bytes == 0 || !joins(at->second)) return {};
  Bytes left = 0, right = 0;
  while (left < enough && !border(run.begin)) {
    const FragmentAt before = std::prev(run.begin);
    const Bytes bytes = map.usable(before->second);
    if (bytes == 0 || !joins(before->second)) break;
    run.begin = before;
    left += bytes;
  }
  while (right < enough && run.end != map.fragments().end() && !border(run.end)) {
    const Bytes bytes = map.usable(run.end->second);
    if (bytes == 0 || !joins(run.end->second)) break;
    ++run.end;
    right += bytes;
  }
  run.bytes += left + right;
  return run;
}

void RoomFinder::put(const Run& run, TierIndex tier, const Rights& rights) {
  const std::size_t first = scores_.size();
  for (FragmentAt p = run.begin; p != run.end; ++p) {
    scores_.push_back(score(p->second, tier, rights));
    places_.push_back(p);
  }
  if (first < scores_.size()) scores_[first].border = true;
}

// The best window of all that was put.
std::optional<Room> RoomFinder::best_of_put(TierIndex tier, Bytes size) {
  const auto window = chooser_.choose(scores_, size, space_.map(tier).granule());
  if (!window) return std::nullopt;
  return Room{.possible = true,
              .wait = window->wait,
              .begin = places_[window->first]->first,
              .end = places_[window->last - 1]->first + 1};
}

// Copies in a full file tier of what is complete above (exclusive capacity) that together with what is free hold
// `size`.
std::vector<Slot> RoomFinder::spare_in_file(TierIndex tier, Bytes size, Slot self) const {
  std::vector<Slot> spare;
  if (!context_.machine.ephemeral) return spare;
  Bytes freed = space_.free_bytes(tier);
  for (Slot s = 0; s < table_.size() && freed < size; ++s) {
    const Checkpoint& c = table_[s];
    if (!c.live() || s == self || c.flush_to >= tier) continue;
    const Replica& r = c.at[tier];
    if (!complete(r.state) || r.uses > 0 || table_.fastest(c) >= tier) continue;
    spare.push_back(s);
    freed += space_.footprint(tier, c.bytes);
  }
  if (freed < size) spare.clear();
  return spare;
}

}  // namespace ebb::planner
