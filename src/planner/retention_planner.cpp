#include "planner/retention_planner.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::planner {

void RetentionPlanner::require_file(TierIndex tier) const {
  if (tier < 0 || tier >= context_.tiers() || context_.memory(tier))
    throw std::logic_error("only of a file tier is it said what is there");
}

// Plans stay as they are, unless a hint named it before.
void RetentionPlanner::on(HistoryId client, const event::Recovered& e) {
  require_file(e.tier);
  if (const Slot found = table_.lookup(client, e.version); found != kNoSlot && table_[found].exists)
    throw std::logic_error("a version that exists was recovered");
  History& h = table_.history(client);
  const Slot slot = table_.obtain(client, e.version);
  Checkpoint& c = table_[slot];
  const bool hinted = c.hint != RestoreOrder::kNone;
  if (hinted) h.unwritten -= h.order.count(slot);
  c.exists = true;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = table_.next_sequence();
  table_.set_stored(c);
  c.filed[e.tier].durable = Filed::Durable::yes;
  c.filed[e.tier].recovered = true;
  c.filed[e.tier].intact = c.bytes == 0;
  replicas_.complete_in_file(slot, e.tier);
  durability_.count(slot);
  if (hinted) replicas_.hints_changed(slot);
}

void RetentionPlanner::on(HistoryId client, const event::Durable& e) {
  require_file(e.tier);
  Checkpoint* const c = reported(client, e.version, e.tier, true);
  if (c == nullptr) return;
  c->filed[e.tier].durable = Filed::Durable::yes;
  c->filed[e.tier].intact = true;
  replicas_.refresh(table_.lookup(client, e.version));
  retire(table_.history(client), e.tier, Durability::When::now);
}

void RetentionPlanner::on(HistoryId client, const event::NotDurable& e) {
  require_file(e.tier);
  if (const Slot slot = table_.lookup(client, e.version); slot != kNoSlot) {
    waits_.not_durable(slot, e.tier);
    if (const MoveIndex filler = table_[slot].at[e.tier].filler; filler != kNoMove) transfers_.delay(filler);
  }
  Checkpoint* const c = reported(client, e.version, e.tier, false);
  if (c == nullptr) return;
  Filed& filed = c->filed[e.tier];
  if (filed.durable == Filed::Durable::pending) filed.durable = Filed::Durable::failed;
  replicas_.refresh(table_.lookup(client, e.version));
}

void RetentionPlanner::on(HistoryId, const event::Unreleased& e) {
  require_file(e.tier);
  if (!context_.machine.releases_later) throw std::logic_error("this file gives room back at once");
  durability_.set_unreleased(e.tier, e.bytes);
  context_.dirty = true;
}

// A process that was killed leaves more than retention says, perhaps all that the file can hold. Older ones of those go
// once so many newer ones were read and found to be intact.
void RetentionPlanner::make_room(TierIndex tier) {
  bool any = false;
  for (History& h : table_.histories()) any |= retire(h, tier, Durability::When::room_is_needed);
  if (any) {
    context_.dirty = true;
    return;
  }
  for (const History& h : table_.histories())
    if (std::ranges::any_of(
            durability_.superseded(h, tier, Durability::When::all_is_durable),
            [&](const Durability::Superseded& one) { return one.goes && table_[one.slot].filed[tier].recovered; }))
      start_checks(h, tier);
}

// The checkpoint that is reported; nullptr: it is gone, or there is no retention.
Checkpoint* RetentionPlanner::reported(HistoryId client, Version version, TierIndex tier, bool complete_there) {
  const Slot slot = table_.lookup(client, version);
  if (!context_.retains() || slot == kNoSlot || !table_[slot].exists) return nullptr;
  Checkpoint& c = table_[slot];
  const Replica& there = c.at[tier];
  if (there.state == ReplicaState::gone || (complete_there && !complete(there.state)))
    throw std::logic_error(key_text(c) + " is not in the file, and was reported durable");
  return &c;
}

// Drops what newer versions make up for. True: something was dropped.
bool RetentionPlanner::retire(History& h, TierIndex tier, Durability::When when) {
  bool any = false;
  for (const auto& [slot, goes] : durability_.superseded(h, tier, when)) {
    Checkpoint& c = table_[slot];
    if (goes) {
      context_.out->retired.push_back({c.history, c.version});
      outcomes_.drop(slot);
      any = true;
    } else {
      c.filed[tier].exempt = true;
      durability_.count(slot);
    }
  }
  return any;
}

void RetentionPlanner::start_checks(const History& h, TierIndex tier) {
  std::uint64_t count = 0;
  bool ours = false;
  const std::map<Version, Slot>& line = h.line[tier];
  for (auto at = line.rbegin(); at != line.rend() && count < context_.machine.retention.keep_last; ++at) {
    const Slot slot = at->second;
    Checkpoint& c = table_[slot];
    const Filed& filed = c.filed[tier];
    if (filed.durable != Filed::Durable::yes) continue;
    ours |= !filed.recovered;
    const bool counts = filed.intact || ours;
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
