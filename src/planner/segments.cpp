// Memory that is lent, recalled and lost: what is there leaves, moves away or
// is given up.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::on(HistoryId, const event::Lend& e) {
  const std::vector<Slot> stay = space.lend(e.tier, e.segment, e.bytes);
  context.dirty = true;
  for (Slot s : stay) replicas.refresh(s);
}

// Moves there that have more to give are off; where all is given, what becomes
// of it decides, since an application's stream may be past it.
void Planner::State::on(HistoryId, const event::Recall& e) {
  const auto t = static_cast<std::size_t>(e.tier);
  space.recall(e.tier, e.segment, e.bytes, e.deadline);
  context.dirty = true;
  for (Slot s : space.map(e.tier).owners_beyond(e.segment)) {
    const Checkpoint& c = table[s];
    if (c.at[t].state == ReplicaState::gone) continue;
    replicas.refresh(s);
    for (MoveIndex i : c.moves)
      if (space.urgently_recalled(c, e.tier) && transfers[i].kind == MoveKind::flush)
        transfers.make_demand(i, context.now);
    if (c.at[t].filler == kNoMove) continue;
    Move& m = transfers[c.at[t].filler];
    if (m.cancelled || transfers.all_out(m)) continue;
    m.displaced = true;
    cancel_move(c.at[t].filler);
  }
}

void Planner::State::on(HistoryId, const event::Lost& e) {
  space.lose(e.tier, e.segment);
  context.dirty = true;
  const std::string where = "it was in segment " + std::to_string(e.segment) + " of tier " +
                            context.machine.tiers[static_cast<std::size_t>(e.tier)].name + ", whose memory was lost";
  for (Slot s : space.map(e.tier).owners_beyond(e.segment)) lose_replica(s, e.tier, where);
}

// What is moved there or from there ends; its calls try other ways. But what an
// application's stream was given, all of it, cannot be given again.
void Planner::State::lose_replica(Slot slot, TierIndex tier, const std::string& why) {
  Checkpoint& c = table[slot];
  Replica& r = c.at[static_cast<std::size_t>(tier)];
  c.lost_why = why;
  replicas.mark_failed(slot, tier);
  r.failed = true;  // also if it is yet to be committed, or has lost its name
  replicas.refresh(slot);
  std::vector<MoveIndex> ending;
  if (r.filler != kNoMove) ending.push_back(r.filler);
  for (MoveIndex i : c.moves)
    if (transfers[i].from == tier) ending.push_back(i);
  for (MoveIndex i : ending) {
    Move& m = transfers[i];
    const bool final = on_its_stream(m) && transfers.all_out(m);
    if (!m.failed) (final ? m.failed : m.displaced) = true;
    if (final && m.from == tier) context.out->spoiled.push_back(m.request);
  }
  for (MoveIndex i : ending) {
    Move& m = transfers[i];
    if (!m.live) continue;
    if (m.to == tier) spoil_readers(m, 0, !m.failed);
    cancel_move(i);
  }
  if (c.live && complete(r.state)) give_up_failed(slot);
  replicas.try_release(slot);
}

// What is beyond the end of a segment goes once nobody uses it, if it is
// complete elsewhere.
void Planner::State::leave_beyond() {
  for (TierIndex t = 0; t < context.tiers(); ++t) {
    if (!context.memory(t)) continue;
    for (Slot s : space.map(t).owners_beyond()) {
      const Checkpoint& c = table[s];
      const Replica& r = c.at[static_cast<std::size_t>(t)];
      if (!complete(r.state) || r.uses > 0 || (table.fastest(c) == t && table.lowest(c) == t)) continue;
      replicas.remove(s, t, false);
      replicas.try_release(s);
    }
  }
}

// The only copy in memory that its lender will take, and that no tier below can
// hold, goes up.
void Planner::State::rescue_upwards() {
  for (TierIndex t = 1; t < context.tiers(); ++t) {
    if (!context.memory(t)) continue;
    for (Slot s : space.map(t).owners_beyond()) {
      const Checkpoint& c = table[s];
      const bool only =
          complete(c.at[static_cast<std::size_t>(t)].state) && table.fastest(c) == t && table.lowest(c) == t;
      if (!only || !space.urgently_recalled(c, t) || c.at[static_cast<std::size_t>(t)].uses > 0) continue;
      bool fits_below = false;
      for (TierIndex to = context.below(t); to != kNoTier; to = context.below(to))
        fits_below |= space.fits(to, c.bytes);
      if (fits_below) continue;
      for (TierIndex to = t; to-- > 0;) {
        if (!context.memory(to) || c.at[static_cast<std::size_t>(to)].state != ReplicaState::gone) continue;
        const Room room = look(to, c.bytes, {.who = Rights::prefetch, .distance = table.distance(c), .self = s});
        if (!room.possible || room.wait > 0) continue;
        take(to, s, room, ReplicaState::reading);
        replicas.start_move(MoveKind::prefetch, s, t, to, true, context.now);
        break;
      }
    }
  }
}

}  // namespace ebb::policy
