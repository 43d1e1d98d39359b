#include "planner/writes.hpp"

#include <string>
#include <type_traits>

namespace ebb::policy {

// `e`: a Checkpoint or a Reserve.
template <class Write>
bool Writes::begin_write(HistoryId client, const Write& e, Slot& slot, Request& r) {
  const Slot found = table_.lookup(client, e.version);
  if (found != kNoSlot && table_[found].exists) {
    context_.answer(e.request, Reason::version_exists, key_text(table_[found]) + " was written already");
    return false;
  }
  constexpr bool reserve = std::is_same_v<Write, event::Reserve>;
  if (reserve && !context_.memory(0)) {
    context_.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
    return false;
  }
  if (e.bytes > 0 && (reserve ? !space_.fits(0, e.bytes) : !space_.fits_somewhere(e.bytes))) {
    context_.answer(e.request, Reason::too_large, std::to_string(e.bytes) + " bytes; " + space_.describe());
    return false;
  }
  slot = table_.obtain(client, e.version);
  Checkpoint& c = table_[slot];
  History& h = table_.history(client);
  h.unwritten -= h.order.count(slot);
  if (c.hint < h.ready.next) h.ready = Successors{};  // it was passed over
  h.consumed.erase(e.version);
  h.lost.erase(e.version);
  h.reading = false;
  if (h.last_write > 0) h.write_interval += (context_.now - h.last_write - h.write_interval) / 4;
  h.last_write = context_.now;
  c.exists = true;
  c.reserving = reserve;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = table_.next_sequence();
  c.hinted = h.reverse;
  if (h.reverse) replicas_.hint(client, e.version, true);
  r.id = e.request;
  r.kind = reserve ? Request::Kind::reserve : Request::Kind::checkpoint;
  r.checkpoint = slot;
  r.since = context_.now;
  r.deadline = e.timeout >= kNever - context_.now ? kNever : context_.now + e.timeout;
  if constexpr (!reserve) r.ordered = e.ordered;
  return true;
}

void Writes::on(HistoryId client, const event::Checkpoint& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = calls_.add(r);
  if (e.bytes == 0) {
    table_.set_stored(table_[slot]);
    if (context_.keeps_in_file()) replicas_.complete_in_file(slot);
    replicas_.hints_changed(slot);
    calls_.answer(kept, Reason::ok);
    return;
  }
  context_.dirty = true;
  if (!calls_.waiting().empty() || !placing_.place(kept, false, false)) {
    calls_.wait(kept);
  }
}

void Writes::on(HistoryId client, const event::Reserve& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = calls_.add(r);
  context_.dirty = true;
  if (e.bytes == 0) return calls_.answer(kept, Reason::ok);
  if (!calls_.waiting().empty() || !placing_.place(kept, false, false)) {
    calls_.wait(kept);
  }
}

void Writes::on(HistoryId, const event::Commit& e) {
  const auto hold = calls_.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  Checkpoint& c = table_[slot];
  if (c.bytes > 0) {
    if (!e.in_use) c.at[0].uses = 0;
    c.at[0].watermark = c.bytes;
    table_.set_state(slot, 0, ReplicaState::written);
  }
  if (e.in_use && c.bytes > 0) calls_.hold(e.request, {.checkpoint = slot, .memory_only = true});
  table_.set_stored(c);
  c.reserving = c.submitted = false;
  if (c.bytes > 0 && c.at[0].failed) {  // its memory was lost
    outcomes_.start_parked(slot);
    outcomes_.discard_failed(slot);
    return replicas_.try_release(slot);
  }
  if (c.bytes == 0 && !c.pending_delete && context_.keeps_in_file()) replicas_.complete_in_file(slot);
  if (c.pending_delete) {  // dropped meanwhile
    replicas_.refresh(slot);
    outcomes_.start_parked(slot);  // asked for before that
    replicas_.try_release(slot);
    return;
  }
  replicas_.hints_changed(slot);
  outcomes_.start_parked(slot);  // asked for before the stream that computed it was done
  if (!waits_.empty()) waits_.progress(slot);
}

void Writes::on(HistoryId, const event::Abandon& e) {
  const auto hold = calls_.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  outcomes_.undo_write(slot);
  if (table_[slot].bytes > 0) {
    table_[slot].at[0].uses = 0;
    replicas_.remove(slot, 0, false);
  }
  replicas_.try_release(slot);
}

}  // namespace ebb::policy
