#include "planner/replicas.hpp"

#include <stdexcept>
#include <utility>

namespace ebb::planner {

// Brings every complete replica's state to what its facts say, and the checkpoint into the flush list it belongs to.
void Replicas::refresh(Slot slot) {
  context_.dirty = true;
  Checkpoint& c = table_[slot];
  TierIndex bottom = kNoTier;
  bool safe_below = false;
  for (TierIndex t = context_.tiers(); t-- > 0;) {
    Replica& r = c.at[t];
    if (!good(r)) continue;
    if (bottom == kNoTier) bottom = t;
    ReplicaState to = safe_below || !table_.goes_below(c, t) ? ReplicaState::flushed : ReplicaState::written;
    safe_below |= !space_.beyond(c, t);
    if (c.name == NameState::consumed || (c.nameless() && r.state == ReplicaState::consumed))
      to = ReplicaState::consumed;
    else if (r.wanted)
      to = ReplicaState::read_complete;
    else if (r.state == ReplicaState::consumed) {  // hinted again: it passes through `wanted`
      table_.set_state(slot, t, ReplicaState::read_complete);
    }
    if (r.state != to) table_.set_state(slot, t, to);
  }
  space_.count_spare(slot, c);
  durability_.count(slot);
  bool going_down = false;
  for (MoveIndex m : c.moves) going_down |= transfers_[m].kind == MoveKind::flush;
  const bool candidate =
      c.stored() && !c.nameless() && bottom != kNoTier && !going_down &&
      (context_.keeps(bottom) ? table_.next_below(c, bottom) != kNoTier : bottom < context_.last_tier());
  const bool force = candidate && (c.flush_to > bottom || space_.beyond(c, bottom));
  const bool counts = context_.counts_files();
  const bool in_turn = counts || c.hint == RestoreOrder::kNone;
  const FlushKey key{in_turn ? INT64_MIN : -c.hint, counts ? c.stored_at : c.written, slot};
  const bool compared = candidate && !context_.machine.ephemeral;
  queue_.put(c, candidate ? bottom : kNoTier, force, key, compared ? flush_kind(c, bottom) : FlushKind::alone);
}

FlushKind Replicas::flush_kind(const Checkpoint& c, TierIndex bottom) const {
  bool alone = c.flush_failures > 0 || space_.beyond(c, bottom);
  for (TierIndex t = context_.below(bottom); t != kNoTier; t = context_.below(t))
    alone |= c.at[t].state != ReplicaState::gone;
  const bool awaited = c.flush_to > bottom, hinted = c.hint != RestoreOrder::kNone || c.at[bottom].wanted;
  if (alone || (awaited && (hinted || c.flush_to != context_.last_tier()))) return FlushKind::alone;
  return awaited ? FlushKind::awaited : hinted ? FlushKind::hinted : FlushKind::plain;
}

// Places a replica on a tier that has room for it.
void Replicas::enter(Slot slot, TierIndex tier, ReplicaState as) {
  Checkpoint& c = table_[slot];
  c.at[tier].offset = space_.enter(tier, slot, c.bytes_on(tier));
  table_.set_state(slot, tier, ReplicaState::init);
  table_.set_state(slot, tier, as);
}

void Replicas::adopt(Slot slot, Bytes place) {
  Checkpoint& c = table_[slot];
  space_.adopt(0, c.bytes);
  c.at[0].offset = place;
  table_.set_state(slot, 0, ReplicaState::init);
  table_.set_state(slot, 0, ReplicaState::reserved);
}

void Replicas::remove(Slot slot, TierIndex tier, bool evicted) {
  Checkpoint& c = table_[slot];
  Replica& r = c.at[tier];
  if (r.uses != 0 || r.filler != kNoMove) throw std::logic_error("a replica in use was removed");
  const Bytes size = space_.footprint(tier, c.bytes_on(tier));
  const bool uses_rest = tier == c.split.on && complete(r.state);
  space_.leave(tier, r.offset, size, evicted);
  context_.out->freed.push_back({tier, table_.ref(slot), context_.memory(tier) ? r.offset : 0, size, r.failed});
  if (r.wanted) {
    r.wanted = false;
    if (r.state == ReplicaState::read_complete) refresh(slot);
  }
  if (r.state == ReplicaState::read_complete)  // it could not be read
    table_.set_state(slot, tier, ReplicaState::written);
  table_.set_state(slot, tier, ReplicaState::gone);
  space_.count_spare(slot, c);
  r = Replica{};
  if (tier == c.makes_way) c.makes_way = kNoTier;
  if (tier == c.split.on) {
    const TierIndex rest = std::exchange(c.split, {}).rest;
    if (uses_rest) release_use(slot, rest);
  }
  if (c.filed[tier].state != FileState::pending) c.filed[tier].become(FileState::pending);
  if (const TierIndex still = table_.fastest(c); still == kNoTier || still > tier) table_.recount(slot);
  refresh(slot);
}

void Replicas::release_use(Slot slot, TierIndex tier) {
  Checkpoint& c = table_[slot];
  Replica& r = c.at[tier];
  if (r.uses == 0) throw std::logic_error("a use was released twice");
  --r.uses;
  context_.dirty = true;
  if (r.uses > 0) return;
  // The move that filled it has failed, and this was the last that still read what had arrived.
  const bool left_over = r.filler == kNoMove && (r.state == ReplicaState::reading || r.state == ReplicaState::writing);
  const bool first_followed = tier == c.split.on && complete(c.at[c.split.rest].state);  // all is where its rest was
  if (left_over || first_followed) remove(slot, tier, false);
}

// Makes a replica in a tier's file complete without a command: none of its bytes have to be moved.
void Replicas::complete_in_file(Slot slot, TierIndex t) {
  enter(slot, t, ReplicaState::writing);
  for (const ReplicaState to : {ReplicaState::written, ReplicaState::flushed}) table_.set_state(slot, t, to);
  Checkpoint& c = table_[slot];
  c.at[t].watermark = c.bytes;
}

void Replicas::complete_in_files(Slot slot) {
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t)
    if (table_.sent_to(table_[slot], t)) complete_in_file(slot, t);
}

void Replicas::mark_failed(Slot slot, TierIndex tier) {
  Checkpoint& c = table_[slot];
  Replica& r = c.at[tier];
  if (c.nameless() || r.failed || !complete(r.state)) return;
  r.wanted = false;
  refresh(slot);
  r.failed = true;
  table_.recount(slot);
  refresh(slot);
}

void Replicas::try_release(Slot slot) {
  Checkpoint& c = table_[slot];
  if (!c.live()) return;
  if (c.nameless() && c.readers == 0) {
    for (TierIndex t = 0; t < context_.tiers(); ++t) {
      Replica& r = c.at[t];
      if (!complete(r.state) || r.uses > 0) continue;
      r.wanted = false;
      if (r.state != ReplicaState::consumed) table_.set_state(slot, t, ReplicaState::consumed);
      remove(slot, t, false);
    }
  }
  if (c.exists() && !c.nameless()) return;
  if (c.readers > 0 || c.held() || !c.moves.empty() || c.hint != RestoreOrder::kNone) return;
  for (TierIndex t = 0; t < context_.tiers(); ++t)
    if (c.at[t].state != ReplicaState::gone) return;
  if (!c.nameless()) table_.unname(slot);
  refresh(slot);
  table_.release(slot);
}

MoveIndex Replicas::start_move(MoveKind kind, Slot slot, TierIndex from, TierIndex to, bool demand, Time since,
                               const Request* call) {
  const MoveIndex index = transfers_.begin(kind, slot, from, to, demand, since, call);
  refresh(slot);
  return index;
}

// --- hints ----------------------------------------------------------------------------------------------------------

void Replicas::hint(HistoryId client, Version version, bool front) {
  History& h = table_.history(client);
  const Slot slot = table_.obtain(client, version);
  if (!table_[slot].exists()) ++h.unwritten;
  if (front)
    h.order.prepend(slot);
  else
    h.order.append(slot);
  hints_changed(slot);
}

void Replicas::hints_changed(Slot slot) {
  Checkpoint& c = table_[slot];
  c.hint = table_.history_of(c).order.first(slot);
  table_.recount(slot);
  if (c.hint == RestoreOrder::kNone) {
    for (Replica& r : c.at) r.wanted = false;
  } else if (c.name == NameState::consumed) {
    c.become(NameState::named);
    for (Replica& r : c.at)
      if (r.state == ReplicaState::consumed && !r.failed) r.wanted = true;
  }
  refresh(slot);
}

void Replicas::withdraw_hint(Slot slot) {
  Checkpoint& c = table_[slot];
  if (table_.remove_first_hint(slot) && !c.exists()) --table_.history_of(c).unwritten;
  hints_changed(slot);
}

}  // namespace ebb::planner
