// Writes and reservations, and how calls are answered.
#include <algorithm>
#include <utility>

#include "planner/state.hpp"

namespace ebb::policy {

// `e`: a Checkpoint or a Reserve.
template <class Write>
bool Planner::State::begin_write(HistoryId client, const Write& e, Slot& slot, Request& r) {
  const Slot found = table.lookup(client, e.version);
  if (found != kNoSlot && table[found].exists) {
    context.answer(e.request, Reason::version_exists, key_text(table[found]) + " was written already");
    return false;
  }
  constexpr bool reserve = std::is_same_v<Write, event::Reserve>;
  if (reserve && !context.memory(0)) {
    context.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
    return false;
  }
  if (e.bytes > 0 && (reserve ? !space.fits(0, e.bytes) : !space.fits_somewhere(e.bytes))) {
    context.answer(e.request, Reason::too_large, std::to_string(e.bytes) + " bytes; " + space.describe());
    return false;
  }
  slot = table.obtain(client, e.version);
  Checkpoint& c = table[slot];
  History& h = table.history(client);
  h.unwritten -= h.order.count(slot);
  if (c.hint < h.ready.next) h.ready = Successors{};  // it was passed over
  h.consumed.erase(e.version);
  h.lost.erase(e.version);
  h.reading = false;
  if (h.last_write > 0) h.write_interval += (context.now - h.last_write - h.write_interval) / 4;
  h.last_write = context.now;
  c.exists = true;
  c.reserving = reserve;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = table.next_sequence();
  c.hinted = h.reverse;
  if (h.reverse) replicas.hint(client, e.version, true);
  r.id = e.request;
  r.kind = reserve ? Request::Kind::reserve : Request::Kind::checkpoint;
  r.checkpoint = slot;
  r.since = context.now;
  r.deadline = e.timeout >= kNever - context.now ? kNever : context.now + e.timeout;
  if constexpr (!reserve) r.ordered = e.ordered;
  return true;
}

void Planner::State::on(HistoryId client, const event::Checkpoint& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = calls.add(r);
  if (e.bytes == 0) {
    table.set_stored(table[slot]);
    if (context.keeps_in_file()) replicas.complete_in_file(slot);
    replicas.hints_changed(slot);
    calls.answer(kept, Reason::ok);
    return;
  }
  context.dirty = true;
  if (!calls.waiting().empty() || !place(kept, false, false)) {
    calls.wait(kept);
  }
}

void Planner::State::on(HistoryId client, const event::Reserve& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = calls.add(r);
  context.dirty = true;
  if (e.bytes == 0) return calls.answer(kept, Reason::ok);
  if (!calls.waiting().empty() || !place(kept, false, false)) {
    calls.wait(kept);
  }
}

void Planner::State::on(HistoryId, const event::Submit& e) {
  if (Request* const restore = calls.find(e.request)) {
    if (!context.machine.ephemeral || restore->keep) return;
    // Settled now: what becomes of its hints before its copies have ended says
    // nothing any more.
    restore->keep = table[restore->checkpoint].hint != RestoreOrder::kNone;
    if (!restore->keep) condemn(restore->checkpoint, true);
    return;
  }
  Hold* const hold = calls.find_hold(e.request);
  if (hold == nullptr) return;
  calls.set_ending(*hold, e.by_stream);
  context.dirty = true;
  Checkpoint& c = table[hold->checkpoint];
  if (hold->memory_only || c.submitted) return;
  if (c.reserving) {
    c.reserving = false;
    c.submitted = true;
  } else {
    const Slot slot = hold->checkpoint;
    hold->memory_only = true;
    if (c.bytes == 0)
      calls.end_hold(e.request);  // no memory, which would keep the checkpoint's
                                  // place in the table
    finish_read(slot, e.keep);
  }
}

void Planner::State::on(HistoryId, const event::Commit& e) {
  const auto hold = calls.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  Checkpoint& c = table[slot];
  if (c.bytes > 0) {
    if (!e.in_use) c.at[0].uses = 0;
    c.at[0].watermark = c.bytes;
    table.set_state(slot, 0, ReplicaState::written);
  }
  if (e.in_use && c.bytes > 0) calls.hold(e.request, {.checkpoint = slot, .memory_only = true});
  table.set_stored(c);
  c.reserving = c.submitted = false;
  if (c.bytes > 0 && c.at[0].failed) {  // its memory was lost
    start_parked(slot);
    give_up_failed(slot);
    return replicas.try_release(slot);
  }
  if (c.bytes == 0 && !c.condemned && context.keeps_in_file()) replicas.complete_in_file(slot);
  if (c.condemned) {  // dropped meanwhile
    replicas.refresh(slot);
    start_parked(slot);  // asked for before that
    replicas.try_release(slot);
    return;
  }
  replicas.hints_changed(slot);
  start_parked(slot);  // asked for before the stream that computed it was done
  if (!waits.empty()) waits.progress(slot);
}

void Planner::State::on(HistoryId, const event::Abandon& e) {
  const auto hold = calls.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  unwrite(slot);
  if (table[slot].bytes > 0) {
    table[slot].at[0].uses = 0;
    replicas.remove(slot, 0, false);
  }
  replicas.try_release(slot);
}

// As if it had never been written: hints for it wait again.
void Planner::State::unwrite(Slot slot) {
  Checkpoint& c = table[slot];
  if (!c.condemned && std::exchange(c.hinted, false)) replicas.withdraw_hint(slot);
  if (!c.condemned) table.history_of(c).unwritten += table.history_of(c).order.count(slot);
  c.exists = c.stored = c.reserving = c.submitted = false;
  bool lingering = c.readers > 0 || !c.moves.empty();
  for (const Replica& r : c.at) lingering |= r.state != ReplicaState::gone;
  if (lingering && !c.condemned) table.detach(slot);
  waits.progress(slot);
  replicas.refresh(slot);
  start_parked(slot);
  const std::vector<RequestId> order = calls.waiting();
  for (RequestId id : order) {
    const Request* const r = calls.find(id);
    if (r != nullptr && r->checkpoint == slot && r->kind == Request::Kind::borrow)
      c.write_failed ? stop_waiting(id, Reason::lost, "no tier could deliver it")
                     : stop_waiting(id, Reason::unknown_version, "it was not written after all");
  }
}

}  // namespace ebb::policy
