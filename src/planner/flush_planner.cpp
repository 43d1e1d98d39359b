#include "planner/flush_planner.hpp"

#include <algorithm>
#include <vector>

namespace ebb::planner {

void FlushPlanner::schedule() {
  const bool ahead = speculate();
  // A persistent store must get everything down; rules of recency do not say what is needed later.
  const bool sparing = context_.machine.ephemeral && (context_.machine.eviction == EvictionPolicy::score ||
                                                      context_.machine.eviction == EvictionPolicy::score_paper);
  for (TierIndex t = 0; t + 1 < context_.tiers(); ++t) {
    if (!context_.memory(t) && !context_.keeps(t)) continue;
    if (!queue_.empty(t, true)) schedule(t, true, sparing);
    if (ahead && !queue_.empty(t, false) && !(t == 0 && sparing && all_fits())) schedule(t, false, sparing);
  }
}

void FlushPlanner::schedule(TierIndex t, bool forced, bool sparing) {
  FlushQueue::Refused refused;
  if (forced && context_.counts_files())  // these go in the order in which they were written, but for what was recalled
    for (const FlushKind kind : {FlushKind::plain, FlushKind::hinted, FlushKind::awaited}) refused.note(kind, 0);
  FlushKey key;
  for (const FlushKey* at = next(t, forced, nullptr, refused); at != nullptr; at = next(t, forced, &key, refused)) {
    key = *at;
    Checkpoint& c = table_[key.slot];
    const bool urgent = space_.urgently_recalled(c, t);
    const bool in_turn = forced && context_.counts_files() && !urgent;
    if (!in_turn && c.flush_retry > context_.now) context_.wake_by(c.flush_retry);
    if (in_turn || c.flush_retry > context_.now) continue;
    // The replica stays here as well: until its room is needed, its copy below must not displace what would have to be
    // read from a file.
    const Rights mine{.who = Rights::flush,
                      .distance = table_.distance(c),
                      .wanted = c.at[t].wanted,
                      .costly = forced || !sparing || ready_ahead(t) < enough_ahead(c, t),
                      .self = key.slot};
    const FlushGroup group = c.group;
    const Started started = start(key.slot, t, urgent ? Rights{.self = key.slot} : mine, context_.now, 0);
    if (started == Started::yes) continue;
    if (!urgent && (context_.machine.ephemeral || !may_send(t))) return;
    // A persistent store sends what there is room for, past what there is none for.
    if (started == Started::none_so_large && group.kind != FlushKind::alone && all_fit_below(t))
      refused.note(group.kind, group.size);
  }
}

// The one to try after `after`: the next that is not refused, or what goes to a file next.
const FlushKey* FlushPlanner::next(TierIndex t, bool forced, const FlushKey* after,
                                   const FlushQueue::Refused& refused) const {
  const FlushKey* key = queue_.next(t, forced, after, refused);
  if (forced || !refused.any || !context_.counts_files()) return key;
  for (TierIndex to = context_.first_keeping; to < context_.tiers(); ++to) {
    const Slot slot = durability_.next_to(to);
    if (slot == kNoSlot || table_[slot].listed_on != t) continue;
    const FlushKey& filed = table_[slot].key;
    if ((after == nullptr || *after < filed) && (key == nullptr || filed < *key)) key = &filed;
  }
  return key;
}

bool FlushPlanner::all_fit_below(TierIndex from) const {
  const Bytes largest = queue_.largest(from);
  for (TierIndex t = context_.below(from); t != kNoTier; t = context_.below(t))
    if (!space_.fits(t, largest)) return false;
  return true;
}

// Sends a replica one tier down, or farther where the next has no place for it. With a demand behind it, a tier that
// could make room is asked to (the deadline is inherited through all tiers).
FlushPlanner::Started FlushPlanner::start(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  Checkpoint& c = table_[slot];
  const bool demand = rights.who == Rights::demand;
  const bool wanted_there = c.flush_to > from;
  Started refused = Started::none_so_large;
  for (TierIndex t = context_.below(from); t != kNoTier; t = context_.below(t)) {
    if (!space_.fits(t, c.bytes) || c.at[t].state != ReplicaState::gone) continue;
    if (context_.lower(t) && (table_.next_below(c, from) != t || durability_.stands_still(t))) continue;
    if (context_.counts_files() && context_.keeps(t)) {  // in its turn
      durability_.count(slot);                           // the time to try again may have come
      const Slot next = durability_.next_to(t);
      if (next == kNoSlot && c.filed[t].stage == Filed::Stage::unfiled) durability_.note_no_room(t, c.bytes);
      if (next != slot) {
        if (demand && next != kNoSlot && depth < context_.tiers())
          hasten(next, table_.lowest(table_[next]), rights, since, depth + 1);
        return refused;
      }
    }
    // A call waits for it at a file: it goes straight there, and displaces nothing on the way.
    if (wanted_there && context_.memory(t) && t < c.flush_to && space_.free_bytes(t) < space_.footprint(t, c.bytes))
      continue;
    if (!demand && !transfers_.room_for_more(from, t, MoveKind::flush)) {
      if (is_peer(t)) continue;  // the own link to the host is another way
      return refused;
    }
    Rights there = rights;
    there.down = true;
    there.self = slot;
    if (is_peer(t) && (quicker_below(c, from, t, there) || (!demand && idle_below(c, from, t, there)))) {
      refused = Started::no;
      continue;
    }
    const Room room = rooms_.look(t, c.bytes, there);
    if (!room.possible) {
      durability_.note_no_room(t, c.bytes);
      if (!room.full && c.group.kind == FlushKind::hinted) refused = Started::no;  // one needed sooner has more rights
      if (rights.costly) continue;
      there.costly = true;
      if (const Room dear = rooms_.look(t, c.bytes, there); dear.possible && all_later(t, dear, rights.distance))
        return refused;
      continue;  // farther than what is there
    }
    if (room.wait > 0) {
      urge(t, room, there, since, depth + 1);
      return refused;
    }
    rooms_.take(t, slot, room, ReplicaState::writing);
    const MoveIndex m = replicas_.start_move(MoveKind::flush, slot, from, t, demand, since);
    transfers_[m].forced = wanted_there;
    ++context_.counters.flushes;
    return Started::yes;
  }
  return refused;
}

// A lender's pace makes the way to a peer slow, and a tier below has room.
bool FlushPlanner::quicker_below(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights) {
  if (!links_.paced(from, peer, c.bytes)) return false;
  for (TierIndex t = context_.below(peer); t != kNoTier; t = context_.below(t)) {
    if (!space_.fits(t, c.bytes) || c.at[t].state != ReplicaState::gone) continue;
    const Room room = rooms_.look(t, c.bytes, rights);
    return room.possible && room.wait == 0 && links_.time(from, t, c.bytes) < links_.time(from, peer, c.bytes);
  }
  return false;
}

// The way to the peer has something to carry, and that to the tier below has not, which has room. A way that is far
// slower would keep the room here that more could have had meanwhile on its way to the peer.
bool FlushPlanner::idle_below(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights) {
  constexpr Time kFarSlower = 8;  // times
  const TierIndex t = context_.below(peer);
  if (t == kNoTier || !context_.memory(t) || !transfers_.carries(from, peer) || transfers_.carries(from, t))
    return false;
  if (!space_.fits(t, c.bytes) || c.at[t].state != ReplicaState::gone) return false;
  if (links_.time(from, t, c.bytes) / kFarSlower > links_.time(from, peer, c.bytes)) return false;
  const Room room = rooms_.look(t, c.bytes, rights);
  return room.possible && room.wait == 0;
}

// Starts, or hastens, whatever makes this window evictable.
void FlushPlanner::urge(TierIndex tier, const Room& room, const Rights& rights, Time since, int depth) {
  if (!context_.memory(tier) || depth >= context_.tiers()) return;
  Bytes at = room.begin;
  for (Slot s; (s = space_.map(tier).next_owner(at, room.end)) != kNoSlot;) {
    const Checkpoint& c = table_[s];
    const Replica& r = c.at[tier];
    if (r.filler != kNoMove && rights.who == Rights::demand) transfers_.make_demand(r.filler, since);
    if (!complete(r.state) || table_.lowest(c) > tier || c.nameless()) continue;
    hasten(s, tier, rights, since, depth);
  }
}

void FlushPlanner::urge_adopted(const Rights& rights, Time since) {
  for (const bool forced : {true, false})
    for (const FlushKey* key = queue_.next(0, forced, nullptr, {}); key != nullptr;
         key = queue_.next(0, forced, key, {})) {
      const Checkpoint& c = table_[key->slot];
      if (adopted(c.at[0]) && c.flush_retry <= context_.now)
        return static_cast<void>(start(key->slot, 0, rights, since, 0));
    }
}

void FlushPlanner::hasten(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  MoveIndex flush = kNoMove;
  for (MoveIndex i : table_[slot].moves)
    if (transfers_[i].kind == MoveKind::flush) flush = i;
  if (flush == kNoMove)
    start(slot, from, rights, since, depth);
  else if (rights.who == Rights::demand)
    transfers_.make_demand(flush, since);
}

// Whether the link that start() would use has room for more.
bool FlushPlanner::may_send(TierIndex from) const {
  TierIndex t = context_.below(from);
  while (t != kNoTier && is_peer(t) && !transfers_.room_for_more(from, t, MoveKind::flush)) t = context_.below(t);
  return t != kNoTier && transfers_.room_for_more(from, t, MoveKind::flush);
}

bool FlushPlanner::speculate() const {
  if (!context_.machine.ephemeral) return true;
  for (const History& h : table_.histories())
    if (h.last_write > 0 && !h.reading) return true;
  return false;
}

// Whether all that is hinted, written or not, fits the fastest tier: then nothing has to leave it. Of what is not
// written the size is not known: as what was written so far, on average.
bool FlushPlanner::all_fits() const {
  Bytes all = space_.map(0).capacity() - space_.free_bytes(0) + space_.adopted(0);
  for (const History& h : table_.histories()) {
    if (h.live_checkpoints == 0 && h.unwritten == 0) continue;
    if (!h.foreseen) return false;
    all += h.unwritten * space_.footprint(0, h.written_bytes / h.writes);
  }
  return all <= space_.map(0).capacity() + space_.adoptable(0);
}

// What the next writes find on a memory tier: what is free, what may go at no cost, and what is on its way down.
Bytes FlushPlanner::ready_ahead(TierIndex tier) const {
  Bytes ready = space_.free_bytes(tier) + space_.spare_bytes(tier);
  for (TierIndex to = context_.below(tier); to != kNoTier; to = context_.below(to))
    for (MoveIndex i : links_[links_.route(tier, to)[0]].moves) {
      const Move& m = transfers_[i];
      if (m.kind == MoveKind::flush && m.from == tier && m.to == to && !m.cancelled)
        ready += space_.footprint(tier, m.total);
    }
  return ready;
}

// Room for one, and for those that are written while one is flushed.
Bytes FlushPlanner::enough_ahead(const Checkpoint& c, TierIndex tier) const {
  constexpr Time kMost = 8;
  const Time interval = table_.history_of(c).write_interval, flush = links_.time(tier, context_.below(tier), c.bytes);
  const Time written = interval > 0 ? std::min(kMost, flush / interval) : kMost;
  return space_.footprint(tier, c.bytes) * static_cast<Bytes>(2 + written);
}

// Whether all that would have to go is needed later than what is `than` away.
bool FlushPlanner::all_later(TierIndex tier, const Room& room, std::int64_t than) const {
  Bytes at = room.begin;
  for (Slot s; (s = space_.map(tier).next_owner(at, room.end)) != kNoSlot;)
    if (table_.distance(table_[s]) <= than) return false;
  return true;
}

}  // namespace ebb::planner
