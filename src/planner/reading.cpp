// Restores, borrows and what they read from.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::on(HistoryId client, const event::Restore& e) {
  const Slot slot = table.lookup(client, e.version);
  if (slot == kNoSlot || !table[slot].exists || table[slot].reserving)
    return calls.refuse_missing(e.request, client, e.version);
  Checkpoint& c = table[slot];
  table.history(client).reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::restore;
  r.checkpoint = slot;
  r.since = context.now;
  r.keep = e.keep;
  r.ordered = e.ordered;
  r.found_on = table.fastest(c);
  ++c.readers;
  c.touched = table.next_sequence();
  r.hint_taken = table.remove_first_hint(slot);
  replicas.refresh(slot);
  Request& kept = calls.add(r);
  kept.distance = table.ready_successors(table.history(client));
  if (c.bytes == 0 && c.stored) {
    const bool keep = kept.keep;
    calls.answer(kept, Reason::ok);
    finish_read(slot, keep);
    return;
  }
  start_read(kept);
}

// From the fastest complete replica, or from what is being brought (or written)
// to a faster tier, chunk by chunk.
void Planner::State::start_read(Request& r) {
  const Slot slot = r.checkpoint;
  Checkpoint& c = table[slot];
  if (c.bytes == 0 && c.stored) {
    const bool keep = r.keep;
    calls.answer(r, Reason::ok);
    return finish_read(slot, keep);
  }
  TierIndex from = kNoTier;
  for (TierIndex t = 0; t < context.tiers() && from == kNoTier; ++t) {
    if (r.excluded >> t & 1) continue;
    const Replica& rep = c.at[static_cast<std::size_t>(t)];
    if (good(rep) || transfers.filling(rep)) from = t;
  }
  if (from == kNoTier && c.exists && !c.stored && !c.condemned && !r.cancelled)
    return;  // parked: its write waits for room
  if (from == kNoTier) {
    const bool keep_hint = r.hint_taken;
    const bool cancelled = r.cancelled;
    --c.readers;
    if (keep_hint && !c.condemned) {
      if (!c.exists) ++table.history_of(c).unwritten;
      table.history_of(c).order.prepend(slot);
      replicas.hints_changed(slot);
    }
    calls.answer(r,
                 cancelled                 ? Reason::cancelled
                 : !c.exists               ? c.write_failed ? Reason::lost : Reason::unknown_version
                 : c.condemned && !c.spent ? Reason::dropped
                                           : Reason::lost,
                 key_text(c) + (!c.lost_why.empty()          ? " is lost: " + c.lost_why
                                : c.exists || c.write_failed ? " could not be read from any tier"
                                                             : " was not written after all"));
    replicas.try_release(slot);
    return;
  }
  if (!context.memory(from)) ++context.counters.direct_reads;
  const MoveIndex filler = c.at[static_cast<std::size_t>(from)].filler;
  if (filler != kNoMove) transfers.make_demand(filler, r.since);
  r.move = replicas.start_move(MoveKind::read, slot, from, kNoTier, true, r.since, &r);
  Move& m = transfers[r.move];
  m.issued = m.done = r.restored;
  settle(r.move);
}

// Restores of what had no byte yet go on: it is being written now, or never
// will be.
void Planner::State::start_parked(Slot slot) {
  const auto parked = [](const Request& r) { return r.kind == Request::Kind::restore && r.move == kNoMove; };
  for (RequestId id : calls.of(slot, parked)) start_read(calls.at(id));
}

void Planner::State::finish_read(Slot slot, bool keep) {
  Checkpoint& c = table[slot];
  --c.readers;
  if (c.hint == RestoreOrder::kNone)
    for (Replica& r : c.at) r.wanted = false;
  if (!keep && !c.condemned && c.hint == RestoreOrder::kNone && c.stored) {
    if (context.machine.ephemeral) {
      condemn(slot, true);
      return;
    }
    c.consumed = true;
  }
  replicas.refresh(slot);
  replicas.try_release(slot);
}

void Planner::State::on(HistoryId client, const event::Borrow& e) {
  const Slot slot = table.lookup(client, e.version);
  if (slot == kNoSlot || !table[slot].exists || table[slot].reserving)
    return calls.refuse_missing(e.request, client, e.version);
  Checkpoint& c = table[slot];
  if (!context.memory(0)) return context.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
  if (c.bytes > 0 && !space.fits(0, c.bytes))
    return context.answer(e.request, Reason::too_large, std::to_string(c.bytes) + " bytes; " + space.describe());
  table.history(client).reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::borrow;
  r.checkpoint = slot;
  r.since = context.now;
  r.deadline = e.timeout >= kNever - context.now ? kNever : context.now + e.timeout;
  r.found_on = table.fastest(c);
  ++c.readers;
  c.touched = table.next_sequence();
  r.hint_taken = table.remove_first_hint(slot);
  replicas.refresh(slot);
  Request& kept = calls.add(r);
  if (!calls.waiting().empty() || !place(kept, false, false)) {
    calls.wait(kept);
  }
}

void Planner::State::on(HistoryId, const event::Release& e) {
  const auto hold = calls.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  if (table[slot].bytes > 0) replicas.release_use(slot, 0);
  if (!hold->memory_only) finish_read(slot, e.keep);
  replicas.refresh(slot);
  give_up_failed(slot);
  replicas.try_release(slot);
}

}  // namespace ebb::policy
