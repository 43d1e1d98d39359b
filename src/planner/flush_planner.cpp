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
                      .costly = forced || !sparing || lacks_room(c, t),
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
  if (is_peer(from) && !demand && !wanted_there && holds_up_relays(c, from)) return Started::no;
  for (TierIndex t = context_.below(from); t != kNoTier; t = context_.below(t)) {
    if (c.at[t].state != ReplicaState::gone) {
      if (c.rest_on(t) && from == c.split.on && !space_.place_beyond(c, t)) return complete_rest(slot, rights, since);
      continue;
    }
    bool whole = false;  // it would be divided, and all of it is for the peer
    if (is_peer(t) && !wanted_there && may_split(c, from, t)) {
      if (!demand && !transfers_.room_for_more(from, t, MoveKind::flush) &&
          !transfers_.room_for_more(from, context_.below(t), MoveKind::flush))
        return refused;
      Rights first = rights;
      first.down = true;
      first.self = slot;
      const Bytes head = head_for(c, from, t, first);
      if (head > 0 && head < c.bytes) {
        start_split(slot, from, {.on = t, .rest = context_.below(t), .head = head}, first, since);
        return Started::yes;
      }
      if (head == 0) {  // it says nothing of others if there is room for a piece
        if (space_.free_bytes(t) + space_.spare_bytes(t) >= least_part(from, t)) refused = Started::no;
        continue;
      }
      whole = true;
    }
    if (!space_.fits(t, c.bytes)) continue;
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
      if (is_peer(t) && !whole) continue;  // the own link to the host is another way
      return refused;
    }
    Rights there = rights;
    there.down = true;
    there.self = slot;
    if (is_peer(t) && (quicker_below(c, from, t, there) || (!demand && !whole && idle_below(c, from, t, there)))) {
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

// Whether a flush out of the peer would keep the lender's link to the host from relaying for long, while something
// leaves the device.
bool FlushPlanner::holds_up_relays(const Checkpoint& c, TierIndex peer) const {
  constexpr Bytes kLong = 2;  // chunks
  if (!context_.machine.ephemeral || rings_.slots(context_.tier(peer).node) == 0) return false;
  if (c.bytes_on(peer) <= kLong * links_[links_.route(0, peer)[0]].spec.chunk && !foreseen()) return false;
  for (TierIndex to = peer; to != kNoTier; to = context_.below(to))
    if (transfers_.carries(0, to)) return true;
  return false;
}

// Sends the first bytes of what is in two parts to where the others are, which has room for them.
FlushPlanner::Started FlushPlanner::complete_rest(Slot slot, const Rights& rights, Time since) {
  const Split parts = table_[slot].split;
  const bool demand = rights.who == Rights::demand;
  if (table_[slot].at[parts.rest].filler != kNoMove) return Started::no;
  if (!demand && !transfers_.room_for_more(parts.on, parts.rest, MoveKind::flush)) return Started::no;
  const MoveIndex m = replicas_.start_move(MoveKind::flush, slot, parts.on, parts.rest, demand, since);
  transfers_[m].forced = table_[slot].flush_to > parts.on;
  ++context_.counters.flushes;
  return Started::yes;
}

// The bytes that can be sent apart: what the ways to both tiers carry, in whole pieces.
Bytes FlushPlanner::least_part(TierIndex from, TierIndex peer) const {
  constexpr Bytes kPieces = 4;  // of a chunk; shorter ones are slower
  const TierIndex below = context_.below(peer);
  const Bytes step = links_[links_.route(from, peer)[0]].spec.chunk / kPieces;
  for (const TierIndex t : {from, peer, below})
    if (step == 0 || step % context_.tier(t).granule != 0) return 0;
  return step;
}

// Whether a replica may go to the peer in part, and in part to the memory tier below, which has a gap for all of it.
bool FlushPlanner::may_split(const Checkpoint& c, TierIndex from, TierIndex peer) const {
  const TierIndex below = context_.below(peer);
  if (below == kNoTier || !context_.memory(below) || c.in_parts() || c.flush_failures > 0) return false;
  const Bytes step = least_part(from, peer);
  return step > 0 && c.bytes > step && good(c.at[from]) && c.at[below].state == ReplicaState::gone &&
         space_.map(below).largest_gap() >= space_.footprint(below, c.bytes);
}

// How many of the first bytes are to go to the peer, so that both ways have carried all that they are to at the same
// time: none, all, or as many whole pieces as there is room for. What is relayed to the host takes the way to the peer.
Bytes FlushPlanner::head_for(const Checkpoint& c, TierIndex from, TierIndex peer, const Rights& rights) {
  const TierIndex below = context_.below(peer);
  const Bytes step = least_part(from, peer);
  const auto rate = [&](Time time) { return 1.0 / static_cast<double>(std::max<Time>(1, time)); };  // of all its bytes
  const LinkEstimate& own = links_[links_.route(from, below)[0]].estimate;
  const double alone = rate(links_.time(from, peer, c.bytes));
  const double relayed = std::max(0.0, rate(links_.time(from, below, c.bytes)) - rate(own.time_for(c.bytes)));
  const double past = rate(own.longest_for(c.bytes)) + relayed, there = std::max(alone / 8, alone - relayed);
  const auto bytes = static_cast<double>(c.bytes), queued = static_cast<double>(transfers_.left(from, peer)),
             queued_past = static_cast<double>(transfers_.left(from, below));
  const double rest = (bytes + queued) - (bytes + queued + queued_past) * there / (there + past);
  const Bytes pieces = static_cast<Bytes>(std::clamp(rest, 0.0, bytes)) / step * step;
  const Bytes most = share_of(peer, c, from, step);
  const auto has_room = [&](Bytes head) {
    const Room room = head > 0 ? rooms_.look(peer, head, rights) : Room{};
    return room.possible && room.wait == 0;
  };
  const Bytes head = std::min(most, pieces == 0 ? c.bytes : (c.bytes - pieces) / step * step);
  if (has_room(head)) return head;
  const Bytes gap = std::min(head, space_.map(peer).largest_gap()) / step * step;
  return has_room(gap) ? gap : 0;
}

// The most of it that the peer is to get: its room is divided among all that has yet to leave, if that is foreseen, so
// that the way to the host is in use from the first to the last.
Bytes FlushPlanner::share_of(TierIndex peer, const Checkpoint& c, TierIndex from, Bytes step) const {
  const Bytes room = space_.free_bytes(peer) + space_.spare_bytes(peer), coming = foreseen().value_or(0),
              ready = ready_ahead(from);
  if (coming <= ready || coming - ready <= room) return c.bytes;
  const double share = static_cast<double>(room) / static_cast<double>(coming - ready);
  return (static_cast<Bytes>(static_cast<double>(c.bytes) * share) + step / 2) / step * step;
}

void FlushPlanner::start_split(Slot slot, TierIndex from, const Split& parts, const Rights& rights, Time since) {
  table_[slot].split = parts;
  rooms_.take(parts.rest, slot, {.possible = true}, ReplicaState::writing);  // in a gap
  rooms_.take(parts.on, slot, rooms_.look(parts.on, parts.head, rights), ReplicaState::writing);
  for (const TierIndex to : {parts.on, parts.rest})
    replicas_.start_move(MoveKind::flush, slot, from, to, rights.who == Rights::demand, since);
  ++context_.counters.flushes;
  ++context_.counters.split;
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
    if (c.rest_on(tier) && !c.splitting() && !c.nameless()) hasten(s, c.split.on, rights, since, depth);
    if (!complete(r.state) || table_.lowest(c) > tier || c.nameless()) continue;
    if (hasten(s, tier, rights, since, depth)) table_[s].makes_way = tier;
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

// True if it is on its way.
bool FlushPlanner::hasten(Slot slot, TierIndex from, const Rights& rights, Time since, int depth) {
  bool flushing = false, arrives = false;
  for (MoveIndex i : table_[slot].moves)
    if (transfers_[i].kind == MoveKind::flush) {
      flushing = true;
      arrives |= !transfers_[i].cancelled;
      if (rights.who == Rights::demand) transfers_.make_demand(i, since);
    }
  return flushing ? arrives : start(slot, from, rights, since, depth) == Started::yes;
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

// Bytes that are hinted and not written: each checkpoint is taken to be as large as those so far, on average. nullopt:
// more than what is hinted may be written.
std::optional<Bytes> FlushPlanner::foreseen() const {
  Bytes all = 0;
  for (const History& h : table_.histories()) {
    if (h.live_checkpoints == 0 && h.unwritten == 0) continue;
    if (!h.foreseen) return std::nullopt;
    all += h.unwritten * space_.footprint(0, h.written_bytes / h.writes);
  }
  return all;
}

// Whether all that is hinted, written or not, fits the fastest tier: then nothing has to leave it.
bool FlushPlanner::all_fits() const {
  const Bytes used = space_.map(0).capacity() - space_.free_bytes(0) + space_.adopted(0);
  const std::optional<Bytes> coming = foreseen();
  return coming && used + *coming <= space_.map(0).capacity() + space_.adoptable(0);
}

// What the next writes find on a memory tier: what is free, what may go at no cost, and what is on its way down.
Bytes FlushPlanner::ready_ahead(TierIndex tier) const {
  Bytes ready = space_.free_bytes(tier) + space_.spare_bytes(tier);
  for (TierIndex to = context_.below(tier); to != kNoTier; to = context_.below(to))
    for (MoveIndex i : links_[links_.route(tier, to)[0]].moves) {
      const Move& m = transfers_[i];
      if (m.kind != MoveKind::flush || m.from != tier || m.to != to || m.cancelled) continue;
      Bytes bytes = m.total;
      if (m.part) {
        const Checkpoint& c = table_[m.checkpoint];
        if (to == c.split.on && c.at[c.split.rest].filler != kNoMove) continue;  // it counts once
        bytes = c.bytes;
      }
      ready += space_.footprint(tier, bytes);
    }
  return ready;
}

// How many are written while one is flushed.
Time FlushPlanner::written_meanwhile(const Checkpoint& c, TierIndex tier) const {
  constexpr Time kMost = 8;
  const Time interval = table_.history_of(c).write_interval, flush = links_.time(tier, context_.below(tier), c.bytes);
  return interval > 0 ? std::min(kMost, flush / interval) : kMost;
}

// Whether the next writes lack room. A flush that takes less time than there is between two of them leaves the memory's
// bandwidth to the copy that the program makes now, unless the next write would wait for room. (Of a copy on a stream
// it is not known when it runs.)
bool FlushPlanner::lacks_room(const Checkpoint& c, TierIndex tier) const {
  const Bytes ready = ready_ahead(tier), one = space_.footprint(tier, c.bytes);
  const Time written = written_meanwhile(c, tier);
  if (ready >= one * static_cast<Bytes>(2 + written)) return false;
  const auto& writes = links_[links_.route(kNoTier, tier)[0]].moves;
  const bool copying = std::ranges::any_of(writes, [&](MoveIndex i) { return !on_its_stream(transfers_[i]); });
  return ready < one || written > 0 || !copying;
}

// Whether all that would have to go is needed later than what is `than` away.
bool FlushPlanner::all_later(TierIndex tier, const Room& room, std::int64_t than) const {
  Bytes at = room.begin;
  for (Slot s; (s = space_.map(tier).next_owner(at, room.end)) != kNoSlot;)
    if (table_.distance(table_[s]) <= than) return false;
  return true;
}

}  // namespace ebb::planner
