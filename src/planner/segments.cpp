// Memory that is lent, recalled and lost: what is there leaves, moves away or is given up.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

FragmentMap& Planner::State::map_of(TierIndex tier) {
  if (tier < 0 || tier >= tiers() || !memory(tier)) throw std::logic_error("only a memory tier has segments");
  return maps[static_cast<std::size_t>(tier)];
}

Planner::State::Lease& Planner::State::lease_of(TierIndex tier, SegmentId segment) {
  Lease& lease = leases[static_cast<std::size_t>(tier)].at(segment);
  if (lease.lost) throw std::logic_error("a segment that was lost has no memory");
  return lease;
}

void Planner::State::on(HistoryId, const event::Lend& e) {
  FragmentMap& map = map_of(e.tier);
  std::vector<Lease>& mine = leases[static_cast<std::size_t>(e.tier)];
  std::vector<Slot> stay;
  if (e.segment < mine.size()) {
    lease_of(e.tier, e.segment);
    stay = map.owners_beyond(e.segment);
  }
  map.lend(e.segment, e.bytes);
  mine.resize(map.segments());
  mine[e.segment] = {};
  dirty = true;
  for (Slot s : stay) refresh(s);
}

// Moves there that have more to give are off; where all is given, what becomes of it decides, since an application's
// stream may be past it.
void Planner::State::on(HistoryId, const event::Recall& e) {
  FragmentMap& map = map_of(e.tier);
  const auto t = static_cast<std::size_t>(e.tier);
  lease_of(e.tier, e.segment) = {.recalled = true, .deadline = e.deadline, .since = now};
  map.recall(e.segment, e.bytes);
  dirty = true;
  for (Slot s : map.owners_beyond(e.segment)) {
    const Checkpoint& c = checkpoints[s];
    if (c.at[t].state == ReplicaState::gone) continue;
    refresh(s);
    for (MoveIndex i : c.moves)
      if (urgently_recalled(c, e.tier) && moves[static_cast<std::size_t>(i)].kind == MoveKind::flush)
        make_demand(i, now);
    if (c.at[t].filler == kNoMove) continue;
    Move& m = moves[static_cast<std::size_t>(c.at[t].filler)];
    if (m.cancelled || all_out(m)) continue;
    m.displaced = true;
    cancel_move(c.at[t].filler);
  }
}

void Planner::State::on(HistoryId, const event::Lost& e) {
  FragmentMap& map = map_of(e.tier);
  lease_of(e.tier, e.segment) = {.lost = true};
  map.recall(e.segment, 0);
  dirty = true;
  const std::string where = "it was in segment " + std::to_string(e.segment) + " of tier " +
                            machine.tiers[static_cast<std::size_t>(e.tier)].name + ", whose memory was lost";
  for (Slot s : map.owners_beyond(e.segment)) lose_replica(s, e.tier, where);
}

// What is moved there or from there ends; its calls try other ways. But what an application's stream was given, all of
// it, cannot be given again.
void Planner::State::lose_replica(Slot slot, TierIndex tier, const std::string& why) {
  Checkpoint& c = checkpoints[slot];
  Replica& r = c.at[static_cast<std::size_t>(tier)];
  c.lost_why = why;
  mark_failed(slot, tier);
  r.failed = true;  // also if it is yet to be committed, or has lost its name
  refresh(slot);
  std::vector<MoveIndex> ending;
  if (r.filler != kNoMove) ending.push_back(r.filler);
  for (MoveIndex i : c.moves)
    if (moves[static_cast<std::size_t>(i)].from == tier) ending.push_back(i);
  for (MoveIndex i : ending) {
    Move& m = moves[static_cast<std::size_t>(i)];
    const bool final = on_its_stream(m) && all_out(m);
    if (!m.failed) (final ? m.failed : m.displaced) = true;
    if (final && m.from == tier) out->spoiled.push_back(m.request);
  }
  for (MoveIndex i : ending) {
    Move& m = moves[static_cast<std::size_t>(i)];
    if (!m.live) continue;
    if (m.to == tier) spoil_readers(m, 0, !m.failed);
    cancel_move(i);
  }
  if (c.live && complete(r.state)) give_up_failed(slot);
  try_release(slot);
}

bool Planner::State::in_lost_memory(const Checkpoint& c, TierIndex t) const {
  const auto i = static_cast<std::size_t>(t);
  return leases[i][maps[i].segment_of(c.at[i].offset)].lost;
}

// Its lender will take what the replica is in, and says when.
bool Planner::State::urgently_recalled(const Checkpoint& c, TierIndex t) const {
  if (!beyond(c, t)) return false;
  const auto i = static_cast<std::size_t>(t);
  return leases[i][maps[i].segment_of(c.at[i].offset)].deadline != kNever;
}

// What is beyond the end of a segment goes once nobody uses it, if it is complete elsewhere.
void Planner::State::leave_beyond() {
  for (TierIndex t = 0; t < tiers(); ++t) {
    if (!memory(t)) continue;
    for (Slot s : maps[static_cast<std::size_t>(t)].owners_beyond()) {
      const Checkpoint& c = checkpoints[s];
      const Replica& r = c.at[static_cast<std::size_t>(t)];
      if (!complete(r.state) || r.uses > 0 || (fastest(c) == t && lowest(c) == t)) continue;
      remove_replica(s, t, false);
      try_release(s);
    }
  }
}

// The only copy in memory that its lender will take, and that no tier below can hold, goes up.
void Planner::State::rescue_upwards() {
  for (TierIndex t = 1; t < tiers(); ++t) {
    if (!memory(t)) continue;
    for (Slot s : maps[static_cast<std::size_t>(t)].owners_beyond()) {
      const Checkpoint& c = checkpoints[s];
      const bool only = complete(c.at[static_cast<std::size_t>(t)].state) && fastest(c) == t && lowest(c) == t;
      if (!only || !urgently_recalled(c, t) || c.at[static_cast<std::size_t>(t)].uses > 0) continue;
      bool fits_below = false;
      for (TierIndex to = below(t); to != kNoTier; to = below(to))
        fits_below |= footprint(to, c.bytes) <= maps[static_cast<std::size_t>(to)].largest_segment();
      if (fits_below) continue;
      for (TierIndex to = t; to-- > 0;) {
        if (!memory(to) || c.at[static_cast<std::size_t>(to)].state != ReplicaState::gone) continue;
        const Room room = look(to, c.bytes, {.who = Rights::prefetch, .distance = distance(c), .self = s});
        if (!room.possible || room.wait > 0) continue;
        take(to, s, room, ReplicaState::reading);
        start_move(MoveKind::prefetch, s, t, to, 0, true, now);
        break;
      }
    }
  }
}

void Planner::State::say_returned() {
  for (TierIndex t = 0; t < tiers(); ++t) {
    std::vector<Lease>& mine = leases[static_cast<std::size_t>(t)];
    for (std::size_t s = 0; s < mine.size(); ++s) {
      const auto segment = static_cast<SegmentId>(s);
      if (!mine[s].recalled || !maps[static_cast<std::size_t>(t)].owners_beyond(segment).empty()) continue;
      mine[s].recalled = false;
      out->returned.push_back({t, segment});
    }
  }
}

}  // namespace ebb::policy
