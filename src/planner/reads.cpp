#include "planner/reads.hpp"

#include <string>

namespace ebb::policy {

void Reads::on(HistoryId client, const event::Restore& e) {
  const Slot slot = table_.lookup(client, e.version);
  if (slot == kNoSlot || !table_[slot].exists || table_[slot].reserving)
    return calls_.refuse_missing(e.request, client, e.version);
  Checkpoint& c = table_[slot];
  table_.history(client).reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::restore;
  r.checkpoint = slot;
  r.since = context_.now;
  r.keep = e.keep;
  r.ordered = e.ordered;
  r.found_on = table_.fastest(c);
  ++c.readers;
  c.touched = table_.next_sequence();
  r.hint_taken = table_.remove_first_hint(slot);
  replicas_.refresh(slot);
  Request& kept = calls_.add(r);
  kept.distance = table_.ready_successors(table_.history(client));
  if (c.bytes == 0 && c.stored) {
    const bool keep = kept.keep;
    calls_.answer(kept, Reason::ok);
    outcomes_.finish_read(slot, keep);
    return;
  }
  outcomes_.start_read(kept);
}

void Reads::on(HistoryId client, const event::Borrow& e) {
  const Slot slot = table_.lookup(client, e.version);
  if (slot == kNoSlot || !table_[slot].exists || table_[slot].reserving)
    return calls_.refuse_missing(e.request, client, e.version);
  Checkpoint& c = table_[slot];
  if (!context_.memory(0)) return context_.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
  if (c.bytes > 0 && !space_.fits(0, c.bytes))
    return context_.answer(e.request, Reason::too_large, std::to_string(c.bytes) + " bytes; " + space_.describe());
  table_.history(client).reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::borrow;
  r.checkpoint = slot;
  r.since = context_.now;
  r.deadline = e.timeout >= kNever - context_.now ? kNever : context_.now + e.timeout;
  r.found_on = table_.fastest(c);
  ++c.readers;
  c.touched = table_.next_sequence();
  r.hint_taken = table_.remove_first_hint(slot);
  replicas_.refresh(slot);
  Request& kept = calls_.add(r);
  if (!calls_.waiting().empty() || !placing_.place(kept, false, false)) {
    calls_.wait(kept);
  }
}

void Reads::on(HistoryId, const event::Release& e) {
  const auto hold = calls_.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  if (table_[slot].bytes > 0) replicas_.release_use(slot, 0);
  if (!hold->memory_only) outcomes_.finish_read(slot, e.keep);
  replicas_.refresh(slot);
  outcomes_.discard_failed(slot);
  replicas_.try_release(slot);
}

void Reads::on(HistoryId, const event::Submit& e) {
  if (Request* const restore = calls_.find(e.request)) {
    if (!context_.machine.ephemeral || restore->keep) return;
    // Settled now: what becomes of its hints before its copies have ended says nothing any more.
    restore->keep = table_[restore->checkpoint].hint != RestoreOrder::kNone;
    if (!restore->keep) outcomes_.begin_delete(restore->checkpoint, true);
    return;
  }
  Hold* const hold = calls_.find_hold(e.request);
  if (hold == nullptr) return;
  calls_.set_ending(*hold, e.by_stream);
  context_.dirty = true;
  Checkpoint& c = table_[hold->checkpoint];
  if (hold->memory_only || c.submitted) return;
  if (c.reserving) {
    c.reserving = false;
    c.submitted = true;
  } else {
    const Slot slot = hold->checkpoint;
    hold->memory_only = true;
    if (c.bytes == 0) calls_.end_hold(e.request);  // no memory, which would keep the checkpoint's place in the table
    outcomes_.finish_read(slot, e.keep);
  }
}

void Reads::on(HistoryId, const event::Ready& e) {
  Request* const r = calls_.find(e.request);
  if (r == nullptr) return;
  r->ready = true;
  if (r->move != kNoMove) transfers_.unhold(transfers_[r->move]);
}

void Reads::on(HistoryId, const event::Cancel& e) {
  if (waits_.cancel(e.request)) return;
  Request* const found = calls_.find(e.request);
  if (found == nullptr) return;
  Request& r = *found;
  if (outcomes_.stop_waiting(e.request, Reason::cancelled,
                             "the call was given up while it waited for room; " + space_.describe()))
    return;
  r.cancelled = true;
  const Slot slot = r.checkpoint;
  if (r.kind == Request::Kind::checkpoint && !table_[slot].pending_delete) {  // copies of it have yet to report
    History& h = table_.history_of(table_[slot]);
    h.unwritten += h.order.count(slot);
    table_.detach(slot);
    table_[slot].exists = false;
    durability_.count(slot);
  }
  if (r.move != kNoMove) {
    outcomes_.cancel_move(r.move);
  } else if (r.kind == Request::Kind::restore) {
    r.excluded = ~0u;
    outcomes_.start_read(r);
  }
}

}  // namespace ebb::policy
