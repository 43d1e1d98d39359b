#include "planner/requests.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace ebb::planner {

// `e`: a Checkpoint, a Reserve or an Adopt. nullptr: it was refused.
template <class Write>
Request* Requests::begin_write(HistoryId client, const Write& e) {
  const Slot found = table_.lookup(client, e.version);
  if (found != kNoSlot && table_[found].exists()) {
    context_.answer(e.request, Reason::version_exists, key_text(table_[found]) + " was written already");
    return nullptr;
  }
  constexpr bool adopt = std::is_same_v<Write, event::Adopt>, reserve = adopt || std::is_same_v<Write, event::Reserve>;
  if (reserve && !context_.memory(0)) {
    context_.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
    return nullptr;
  }
  bool fits = reserve ? space_.fits(0, e.bytes) : space_.fits_somewhere(e.bytes);
  if constexpr (adopt) fits = fits || space_.may_adopt(0, e.bytes);
  if (e.bytes > 0 && !fits) {
    context_.answer(e.request, Reason::too_large, std::to_string(e.bytes) + " bytes; " + space_.describe());
    return nullptr;
  }
  const Slot slot = table_.obtain(client, e.version);
  Checkpoint& c = table_[slot];
  History& h = table_.history(client);
  const std::size_t hints = h.order.count(slot);
  if (hints == 0 || h.unwritten > hints) h.foreseen = hints > 0;  // a program that hints each write foresees nothing
  h.unwritten -= hints;
  ++h.writes;
  h.written_bytes += e.bytes;
  if (c.hint < h.ready.next) h.ready = Successors{};  // it was passed over
  h.consumed.erase(e.version);
  h.lost.erase(e.version);
  h.reading = false;
  if (h.last_write > 0) h.write_interval += (context_.now - h.last_write - h.write_interval) / 4;
  h.last_write = context_.now;
  c.become(reserve ? WriteState::reserved : WriteState::writing);
  c.bytes = e.bytes;
  c.written = c.touched = table_.next_sequence();
  c.hinted = h.reverse;
  if (h.reverse) replicas_.hint(client, e.version, true);
  Request r{.id = e.request,
            .kind = reserve ? Request::Kind::reserve : Request::Kind::checkpoint,
            .checkpoint = slot,
            .since = context_.now,
            .deadline = context_.after(e.timeout)};
  if constexpr (adopt) r.adopt = e.place;
  if constexpr (!reserve) r.ordered = e.ordered;
  context_.dirty = true;
  return &calls_.add(r);
}

// Places a call, or makes it wait behind those that wait already.
void Requests::place_or_wait(Request& r) {
  if (!calls_.waiting().empty() || !placing_.place(r, false, false)) calls_.wait(r);
}

void Requests::on(HistoryId client, const event::Checkpoint& e) {
  Request* const r = begin_write(client, e);
  if (r == nullptr) return;
  if (e.bytes > 0) return place_or_wait(*r);
  const Slot slot = r->checkpoint;
  table_.set_stored(table_[slot]);
  replicas_.complete_in_files(slot);
  replicas_.hints_changed(slot);
  calls_.answer(*r, Reason::ok);
}

void Requests::on(HistoryId client, const event::Reserve& e) {
  Request* const r = begin_write(client, e);
  if (r == nullptr) return;
  if (e.bytes > 0) return place_or_wait(*r);
  calls_.answer(*r, Reason::ok);
}

void Requests::on(HistoryId client, const event::Adopt& e) {
  if (e.place < kAdopted || e.bytes == 0) throw std::logic_error("memory was adopted that is none of the program's");
  if (Request* const r = begin_write(client, e)) place_or_wait(*r);
}

Request& Requests::begin_read(HistoryId client, Request r) {
  Checkpoint& c = table_[r.checkpoint];
  table_.history(client).reading = true;
  r.since = context_.now;
  r.found_on = table_.fastest(c);
  ++c.readers;
  c.touched = table_.next_sequence();
  r.hint_taken = table_.remove_first_hint(r.checkpoint);
  replicas_.refresh(r.checkpoint);
  return calls_.add(r);
}

void Requests::on(HistoryId client, const event::Restore& e) {
  const Slot slot = table_.lookup(client, e.version);
  if (!table_.readable(slot)) return calls_.refuse_missing(e.request, client, e.version);
  const Checkpoint& c = table_[slot];
  Request& kept = begin_read(
      client,
      {.id = e.request, .kind = Request::Kind::restore, .checkpoint = slot, .keep = e.keep, .ordered = e.ordered});
  kept.distance = table_.ready_successors(table_.history(client));
  if (c.bytes == 0 && c.stored()) {
    const bool keep = kept.keep;
    calls_.answer(kept, Reason::ok);
    outcomes_.finish_read(slot, keep);
    return;
  }
  outcomes_.start_read(kept);
}

void Requests::on(HistoryId client, const event::Borrow& e) {
  const Slot slot = table_.lookup(client, e.version);
  if (!table_.readable(slot)) return calls_.refuse_missing(e.request, client, e.version);
  const Checkpoint& c = table_[slot];
  if (!context_.memory(0)) return context_.answer(e.request, Reason::no_such_tier, "the fastest tier is not memory");
  if (c.bytes > 0 && !space_.fits(0, c.bytes) && !adopted(c.at[0]))
    return context_.answer(e.request, Reason::too_large, std::to_string(c.bytes) + " bytes; " + space_.describe());
  place_or_wait(begin_read(
      client,
      {.id = e.request, .kind = Request::Kind::borrow, .checkpoint = slot, .deadline = context_.after(e.timeout)}));
}

// --- what becomes of them --------------------------------------------------------------------------------------------

void Requests::on(HistoryId, const event::Commit& e) {
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
  if (c.bytes > 0 && c.at[0].failed) {  // its memory was lost
    outcomes_.start_parked(slot);
    outcomes_.discard_failed(slot);
    return replicas_.try_release(slot);
  }
  if (c.bytes == 0 && !c.nameless()) replicas_.complete_in_files(slot);
  if (c.nameless()) {  // dropped meanwhile
    replicas_.refresh(slot);
    outcomes_.start_parked(slot);  // asked for before that
    replicas_.try_release(slot);
    return;
  }
  replicas_.hints_changed(slot);
  outcomes_.start_parked(slot);  // asked for before the stream that computed it was done
  if (!waits_.empty()) waits_.progress(slot);
}

void Requests::on(HistoryId, const event::Abandon& e) {
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

void Requests::on(HistoryId, const event::Release& e) {
  const auto hold = calls_.end_hold(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  if (table_[slot].bytes > 0) replicas_.release_use(slot, 0);
  if (!hold->memory_only) outcomes_.finish_read(slot, e.keep);
  replicas_.refresh(slot);
  outcomes_.discard_failed(slot);
  replicas_.try_release(slot);
}

void Requests::on(HistoryId, const event::Submit& e) {
  if (Request* const restore = calls_.find(e.request)) {
    if (!context_.machine.ephemeral || restore->keep) return;
    // Decided now: hints that change before its copies have ended do not count.
    restore->keep = table_[restore->checkpoint].hint != RestoreOrder::kNone;
    if (!restore->keep) outcomes_.begin_delete(restore->checkpoint, true);
    return;
  }
  Hold* const hold = calls_.find_hold(e.request);
  if (hold == nullptr) return;
  calls_.set_ending(*hold, e.by_stream);
  context_.dirty = true;
  Checkpoint& c = table_[hold->checkpoint];
  if (hold->memory_only || c.write == WriteState::submitted) return;
  if (c.write == WriteState::reserved) {
    c.become(WriteState::submitted);
  } else {
    const Slot slot = hold->checkpoint;
    hold->memory_only = true;
    if (c.bytes == 0) calls_.end_hold(e.request);  // no memory, which would keep the checkpoint's place in the table
    outcomes_.finish_read(slot, e.keep);
  }
}

void Requests::on(HistoryId, const event::Ready& e) {
  Request* const r = calls_.find(e.request);
  if (r == nullptr) return;
  r->ready = true;
  if (r->move != kNoMove) transfers_.unhold(transfers_[r->move]);
}

void Requests::on(HistoryId, const event::Cancel& e) {
  if (waits_.cancel(e.request)) return;
  Request* const found = calls_.find(e.request);
  if (found == nullptr) return;
  Request& r = *found;
  if (outcomes_.stop_waiting(e.request, Reason::cancelled,
                             "the call was given up while it waited for room; " + space_.describe()))
    return;
  r.cancelled = true;
  const Slot slot = r.checkpoint;
  if (r.kind == Request::Kind::checkpoint && !table_[slot].nameless()) {  // copies of it have yet to report
    if (std::exchange(table_[slot].hinted, false)) replicas_.withdraw_hint(slot);
    History& h = table_.history_of(table_[slot]);
    h.unwritten += h.order.count(slot);
    table_.detach(slot);
    table_[slot].become(WriteState::unwritten);
    durability_.count(slot);
  }
  if (r.move != kNoMove) {
    outcomes_.cancel_move(r.move);
  } else if (r.kind == Request::Kind::restore) {
    r.excluded = ~0u;
    outcomes_.start_read(r);
  }
}

}  // namespace ebb::planner
