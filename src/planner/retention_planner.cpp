#include "planner/retention_planner.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ebb::planner {

void RetentionPlanner::require_file(TierIndex tier) const {
  if (tier < 0 || tier >= context_.tiers() || context_.memory(tier))
    throw std::logic_error("only of a file tier is it said what is there");
}

// Plans stay as they are, unless a hint named it before, or it goes farther down.
void RetentionPlanner::on(HistoryId client, const event::Recovered& e) {
  require_file(e.tier);
  const Slot found = table_.lookup(client, e.version);
  const bool known = found != kNoSlot && table_[found].exists();
  if (known && (!table_[found].stored() || table_[found].bytes != e.bytes || !context_.keeps(e.tier) ||
                table_[found].at[e.tier].state != ReplicaState::gone))
    throw std::logic_error("a version that exists was recovered");
  const Slot slot = known ? found : recover(client, e);
  Filed& filed = table_[slot].filed[e.tier];
  filed.become(FileState::recovered);
  if (e.bytes == 0) filed.note_read();
  replicas_.complete_in_file(slot, e.tier);
  durability_.count(slot);
  if (table_[slot].hint != RestoreOrder::kNone) replicas_.hints_changed(slot);
  if (context_.several_keep()) replicas_.refresh(slot);
}

Slot RetentionPlanner::recover(HistoryId client, const event::Recovered& e) {
  History& h = table_.history(client);
  const Slot slot = table_.obtain(client, e.version);
  Checkpoint& c = table_[slot];
  if (c.hint != RestoreOrder::kNone) h.unwritten -= h.order.count(slot);
  c.become(WriteState::writing);
  c.bytes = e.bytes;
  c.written = c.touched = table_.next_sequence();
  table_.set_stored(c);
  return slot;
}

void RetentionPlanner::on(HistoryId client, const event::Durable& e) {
  require_file(e.tier);
  durability_.hear(e.tier);
  Checkpoint* const c = reported(client, e.version, e.tier, true);
  if (c == nullptr) return;
  Filed& filed = c->filed[e.tier];
  durable(filed.state) ? filed.note_read() : filed.become(FileState::durable);
  replicas_.refresh(table_.lookup(client, e.version));
  retire(table_.history(client));
}

void RetentionPlanner::on(HistoryId client, const event::Goes& e) {
  const Slot slot = table_.lookup(client, e.version);
  if (slot == kNoSlot || !context_.several_keep()) return;
  for (TierIndex t = context_.below(context_.first_keeping); t != kNoTier; t = context_.below(t))
    table_[slot].filed[t].asked = true;
  replicas_.refresh(slot);
}

void RetentionPlanner::on(HistoryId client, const event::Agreed& e) {
  History& h = table_.history(client);
  h.agreed = e.version;
  if (context_.counts_files()) retire(h);
  context_.dirty = true;
}

// In each file: what has stayed there until it is durable in another may go too.
void RetentionPlanner::retire(History& history) {
  for (auto t = static_cast<TierIndex>(context_.tiers() - 1); t >= context_.first_keeping; --t)
    retire(history, t, Durability::When::now);
}

void RetentionPlanner::look_for_silence() {
  context_.dirty |= durability_.look_for_silence();
  for (TierIndex t = context_.first_keeping + 1; t < context_.tiers(); ++t) {
    if (!durability_.silent(t) && (context_.out->heard >> t & 1) == 0) continue;
    const Route& route = links_.route(static_cast<TierIndex>(t - 1), t);
    for (const MoveIndex i : links_[route[route.hops - 1]].moves)
      if (Move& m = transfers_[i]; m.to == t) durability_.silent(t) ? transfers_.delay(i) : transfers_.undelay(m);
  }
}

void RetentionPlanner::on(HistoryId client, const event::NotDurable& e) {
  require_file(e.tier);
  durability_.hear(e.tier);
  if (const Slot slot = table_.lookup(client, e.version); slot != kNoSlot) {
    waits_.not_durable(slot, e.tier);
    if (const MoveIndex filler = table_[slot].at[e.tier].filler; filler != kNoMove) transfers_.delay(filler);
  }
  Checkpoint* const c = reported(client, e.version, e.tier, false);
  if (c == nullptr) return;
  Filed& filed = c->filed[e.tier];
  if (filed.state == FileState::pending) filed.become(FileState::failed);
  const Slot slot = table_.lookup(client, e.version);
  if (context_.lower(e.tier) && good(c->at[e.tier]) && filed.state == FileState::failed &&
      table_.kept_beside(*c, e.tier)) {  // it is sent down again
    ++c->flush_failures;
    c->flush_retry = context_.now + kRetryAfter;
    leave(slot, e.tier);
  }
  replicas_.refresh(slot);
}

void RetentionPlanner::on(HistoryId, const event::Unreleased& e) {
  require_file(e.tier);
  if (!context_.machine.releases_later) throw std::logic_error("this file gives room back at once");
  durability_.set_unreleased(e.tier, e.bytes);
  context_.dirty = true;
}

// A process that was killed leaves more than retention says, perhaps all that the file can hold. Older ones of those go
// once so many newer ones were read and found to be intact.
void RetentionPlanner::make_room(TierIndex tier, const Durability::Short& lacks) {
  bool any = evict(tier, lacks.bytes);
  if (!any && !lacks.nothing_comes) return;
  for (History& h : table_.histories())
    if (!any) any |= retire(h, tier, Durability::When::room_is_needed);
  any = any || waive_superseded(tier);
  if (any) {
    context_.dirty = true;
    return;
  }
  for (const History& h : table_.histories())
    if (std::ranges::any_of(durability_.superseded(h, tier, Durability::When::all_is_durable),
                            [&](const Durability::Superseded& one) {
                              return one.goes && of_earlier_process(table_[one.slot].filed[tier].state);
                            }))
      start_checks(h, tier);
}

// The checkpoint that is reported; nullptr: it is gone, or there is no retention.
Checkpoint* RetentionPlanner::reported(HistoryId client, Version version, TierIndex tier, bool complete_there) {
  const Slot slot = table_.lookup(client, version);
  if (!context_.counts_files() || slot == kNoSlot || !table_[slot].exists()) return nullptr;
  Checkpoint& c = table_[slot];
  const Replica& there = c.at[tier];
  if (context_.several_keep() && (there.state == ReplicaState::gone || there.leaving)) return nullptr;
  if (there.state == ReplicaState::gone || (complete_there && !complete(there.state)))
    throw std::logic_error(key_text(c) + " is not in the file, and was reported durable");
  return &c;
}

// Drops what newer versions make up for. True: something was dropped.
bool RetentionPlanner::retire(History& h, TierIndex tier, Durability::When when) {
  bool any = false;
  for (const Durability::Superseded& one : durability_.superseded(h, tier, when)) {
    if (one.goes) {
      any |= let_go(one, tier);
    } else {
      table_[one.slot].filed[tier].exempt = true;
      durability_.count(one.slot);
    }
  }
  return any;
}

// The tier's file no longer keeps the version. While another does, that copy alone goes; what has yet to become durable
// below stays until then. So does what is durable in a lower file alone, until newer versions make up for it by the
// retention of the fastest as well: a kill would take what that has. Then all of it goes: what is above may never
// become durable. True: something was dropped.
bool RetentionPlanner::let_go(const Durability::Superseded& superseded, TierIndex tier) {
  const Slot slot = superseded.slot;
  Checkpoint& c = table_[slot];
  if (c.at[tier].leaving || table_.awaited_below(c, tier)) return false;
  bool elsewhere = false, safe = false;
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t) {
    if (t == tier) continue;
    elsewhere |= table_.belongs(c, t);
    safe |= good(c.at[t]) && durable(c.filed[t].state);
  }
  if (context_.lower(tier) && !safe && (durable(c.filed[tier].state) || !elsewhere)) {
    if (!superseded.made_up_for) return false;
    elsewhere = false;
  }
  if (!elsewhere) {
    context_.out->retired.push_back({c.history, c.version});
    outcomes_.drop(slot);
    return true;
  }
  c.filed[tier].waived = true;
  leave(slot, tier);
  replicas_.refresh(slot);
  if (!waits_.empty()) waits_.progress(slot);
  return true;
}

// The copy goes, now or with its last reader.
void RetentionPlanner::leave(Slot slot, TierIndex tier) {
  Replica& r = table_[slot].at[tier];
  if (r.state == ReplicaState::gone) return;
  r.leaving = true;
  if (r.filler != kNoMove) outcomes_.cancel_move(r.filler);
  outcomes_.discard_failed(slot);
}

// Copies of what is durable below go, what no hint names first, until there is room or will be when it is released.
// True: some went.
bool RetentionPlanner::evict(TierIndex tier, Bytes needed) {
  std::vector<Slot> leaving;
  Bytes room = space_.free_bytes(tier) + space_.unreleased(tier);
  for (const SpareKey& key : space_.spares(tier)) {
    if (room >= needed) break;
    const Checkpoint& c = table_[key.slot];
    const Bytes size = space_.footprint(tier, c.bytes);
    if (c.at[tier].uses > 0 || size == 0) continue;
    leaving.push_back(key.slot);
    room += size;
  }
  for (const Slot slot : leaving) replicas_.remove(slot, tier, true);
  return !leaving.empty();
}

// With no room and no progress below, what newer versions make up for here does not wait to be sent down, unless a call
// asked for that.
bool RetentionPlanner::waive_superseded(TierIndex tier) {
  bool any = false;
  if (!context_.several_keep()) return any;
  for (History& h : table_.histories())
    for (const Durability::Superseded& one : durability_.superseded(h, tier, Durability::When::now)) {
      const Slot slot = one.slot;
      Checkpoint& c = table_[slot];
      if (!one.goes || c.flush_to > tier) continue;
      bool waived = false;
      for (TierIndex t = context_.below(tier); t != kNoTier; t = context_.below(t))
        if (c.at[t].state == ReplicaState::gone && !c.filed[t].waived) waived = c.filed[t].waived = true;
      if (waived) replicas_.refresh(slot);
      any |= let_go(one, tier);
    }
  return any;
}

void RetentionPlanner::start_checks(const History& h, TierIndex tier) {
  std::uint64_t count = 0;
  bool ours = false;
  const auto& line = h.stored[tier].line;
  for (auto at = line.rbegin(); at != line.rend() && count < context_.retention(tier).keep_last; ++at) {
    const Slot slot = at->second;
    Checkpoint& c = table_[slot];
    const Filed& filed = c.filed[tier];
    if (!durable(filed.state)) continue;
    ours |= !of_earlier_process(filed.state);
    const bool counts = filed.state != FileState::recovered || ours;
    const bool checking =
        std::ranges::any_of(c.moves, [&](MoveIndex i) { return transfers_[i].kind == MoveKind::check; });
    if (!counts && !checking) {
      if (c.prefetch_failures >= 2 || !good(c.at[tier])) continue;
      if (!transfers_.room_for_more(tier, kNoTier, MoveKind::check)) return;
      replicas_.start_move(MoveKind::check, slot, tier, kNoTier, true, context_.now);
    }
    ++count;
  }
}

}  // namespace ebb::planner
