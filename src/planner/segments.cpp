#include "planner/segments.hpp"

#include <vector>

namespace ebb::planner {

void Segments::on(HistoryId, const event::Lend& e) {
  context_.dirty = true;
  const bool unused = space_.unused(e.tier, e.segment);
  const std::vector<Slot> stay = space_.lend(e.tier, e.segment, e.bytes, e.lender, e.relays);
  if (const auto* const ring = rings_.in(e.tier, e.segment); ring == nullptr) {
    if (e.relays && unused) make_ring(e);
  } else if (e.bytes > ring->begin) {  // chunks may be in it still
    space_.set_aside(e.tier, e.segment, e.bytes - ring->begin);
  }
  for (Slot s : stay) replicas_.refresh(s);
}

// Makes a staging ring at the end of the segment, where checkpoints never were.
void Segments::make_ring(const event::Lend& e) {
  const TierSpec& tier = context_.tier(e.tier);
  const Bytes whole = e.bytes / tier.granule * tier.granule, bytes = rings_.wanted(tier.node, e.lender, whole);
  if (bytes == 0) return;
  space_.set_aside(e.tier, e.segment, bytes + (e.bytes - whole));
  const Bytes begin = whole - bytes, first = space_.map(e.tier).first_of(e.segment);
  rings_.open(tier.node, {.tier = e.tier,
                          .segment = e.segment,
                          .lender = e.lender,
                          .begin = begin,
                          .end = whole,
                          .offset = first + begin});
}

void Segments::on(HistoryId, const event::Limit& e) {
  pacers_.limit(e.lender, e.share);
  context_.dirty = true;
}

// Cancels the moves to the recalled part that have commands yet to give. Those that have given all go on, since an
// application's stream may be past their copies.
void Segments::on(HistoryId, const event::Recall& e) {
  if (const auto* const ring = rings_.in(e.tier, e.segment); ring != nullptr && e.bytes < ring->end)
    rings_.close(e.tier, e.segment, e.deadline != kNever);
  space_.recall(e.tier, e.segment, e.bytes, e.deadline);
  context_.dirty = true;
  for (Slot s : space_.map(e.tier).owners_beyond(e.segment)) {
    const Checkpoint& c = table_[s];
    if (c.at[e.tier].state == ReplicaState::gone) continue;
    replicas_.refresh(s);
    if (c.splitting() && c.part_on(e.tier)) {
      outcomes_.undo_split(s);
      continue;
    }
    for (MoveIndex i : c.moves)
      if (space_.urgently_recalled(c, e.tier) && transfers_[i].kind == MoveKind::flush)
        transfers_.make_demand(i, context_.now);
    if (c.at[e.tier].filler == kNoMove) continue;
    Move& m = transfers_[c.at[e.tier].filler];
    if (m.cancelled || transfers_.all_out(m)) continue;
    m.displaced = true;
    outcomes_.cancel_move(c.at[e.tier].filler);
  }
}

void Segments::on(HistoryId, const event::Lost& e) {
  space_.mark_lost(e.tier, e.segment);
  rings_.close(e.tier, e.segment, /*urgent=*/true, /*lost=*/true);
  transfers_.leave_lost_rings();
  context_.dirty = true;
  const std::string where = "it was in segment " + std::to_string(e.segment) + " of tier " +
                            context_.tier(e.tier).name + ", whose memory was lost";
  for (Slot s : space_.map(e.tier).owners_beyond(e.segment)) mark_lost(s, e.tier, where);
}

// What is beyond the end of a segment goes once nothing uses it, if it is complete elsewhere.
void Segments::leave_beyond() {
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    if (!context_.memory(t) || !space_.map(t).shortened()) continue;
    for (Slot s : space_.map(t).owners_beyond()) {
      const Checkpoint& c = table_[s];
      const TierIndex counts = c.rest_on(t) ? c.split.on : t;
      const Replica& r = c.at[counts];
      if (!complete(r.state) || r.uses > 0 || (table_.fastest(c) == counts && table_.lowest(c) == counts)) continue;
      replicas_.remove(s, counts, false);
      replicas_.try_release(s);
    }
  }
}

// Ends the moves to and from the lost place; their calls try other ways. But copies that an application's stream was
// given whole cannot be given again.
void Segments::mark_lost(Slot slot, TierIndex tier, const std::string& why) {
  Checkpoint& c = table_[slot];
  Replica& r = c.at[tier];
  if (c.part_on(tier)) outcomes_.undo_split(slot);
  if (c.in_parts() && tier == c.split.rest && !c.splitting()) mark_lost(slot, c.split.on, why);
  if (r.state == ReplicaState::gone) return replicas_.try_release(slot);
  c.lost_why = std::make_unique<const std::string>(why);
  replicas_.mark_failed(slot, tier);
  r.failed = true;  // also if it is yet to be committed, or has lost its name
  replicas_.refresh(slot);
  std::vector<MoveIndex> ending;
  if (r.filler != kNoMove) ending.push_back(r.filler);
  for (MoveIndex i : c.moves)
    if (transfers_[i].from == tier) ending.push_back(i);
  for (MoveIndex i : ending) {
    Move& m = transfers_[i];
    const bool final = on_its_stream(m) && transfers_.all_out(m);
    if (!m.failed) (final ? m.failed : m.displaced) = true;
    if (final && m.from == tier) context_.out->spoiled.push_back(m.request);
  }
  for (MoveIndex i : ending) {
    Move& m = transfers_[i];
    if (!m.live) continue;
    if (m.to == tier) outcomes_.spoil_readers(m, 0, !m.failed);
    outcomes_.cancel_move(i);
  }
  if (c.live() && complete(r.state)) outcomes_.discard_failed(slot);
  replicas_.try_release(slot);
}

}  // namespace ebb::planner
