#include "planner/outcomes.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ebb::planner {

void Outcomes::on(HistoryId, const event::Carried& e) { transfers_.carried(e.command); }

void Outcomes::on(HistoryId, const event::Finished& e) {
  const Transfers::Sent sent = transfers_.ended(e.command, false);
  Move& m = transfers_[sent.move];
  if (m.cancelled) {
    transfers_.remove_chunk(m, sent.offset);
    // The bytes that a call has got so far are right. They must not be copied again: the call may have returned.
    const bool got = m.kind == MoveKind::read && !m.failed && !m.displaced && sent.last;
    if (got && sent.offset == m.done) m.done += sent.length;
    if (m.in_flight == 0) abort_move(sent.move);
    return;
  }
  Chunk& chunk = transfers_.chunk_of(m, sent.offset);
  if (transfers_.in_lost_ring(m, chunk)) {
    if (m.to == kNoTier || !space_.beyond(table_[m.checkpoint], m.to)) return transfers_.go_straight(m, chunk);
    m.displaced = true;
    transfers_.remove_chunk(m, sent.offset);
    return cancel_move(sent.move);
  }
  chunk.moving = false;
  if (chunk.hop > 0) transfers_.return_slot(m, chunk, chunk.hop - 1);
  ++chunk.hop;
  if (!arrived(m, chunk)) return;
  transfers_.return_slots(m, chunk);
  context_.dirty |= transfers_.room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
  settle(sent.move);
}

void Outcomes::on(HistoryId, const event::Failed& e) {
  const Transfers::Sent sent = transfers_.ended(e.command, true);
  Move& m = transfers_[sent.move];
  const Checkpoint& c = table_[m.checkpoint];
  const bool nowhere = m.to != kNoTier && space_.beyond(c, m.to);
  if (Chunk& chunk = transfers_.chunk_of(m, sent.offset); chunk.way > 0 && !m.cancelled && !nowhere) {
    ++context_.counters.retries;
    return transfers_.go_straight(m, chunk);
  }
  // A command that failed for lack of memory says nothing of the transfer, and nothing of it ran on a stream.
  const bool unread = m.from != kNoTier && m.reads == m.from && space_.beyond(c, m.from) &&
                      c.at[m.from].watermark < sent.offset + sent.length;
  const bool no_memory = e.cause == event::Failed::no_room && (nowhere || unread);
  const bool homeless = nowhere && !m.ordered;  // not to be tried again
  if (!m.failed) m.displaced |= no_memory || homeless;
  if (m.to != kNoTier) spoil_readers(m, sent.offset, no_memory);
  // What is full stays full for longer than retries take; what an application's stream was given cannot be given again.
  const bool hopeless = e.cause != event::Failed::passing || on_its_stream(m);
  if (!m.cancelled && !m.displaced && !hopeless && m.retries < context_.machine.max_retries) {
    ++m.retries;
    ++context_.counters.retries;
    Chunk& chunk = transfers_.chunk_of(m, sent.offset);
    chunk.moving = false;
    if (sent.first) transfers_.return_slots(m, chunk);  // others may need them meanwhile
    return;
  }
  if (!m.displaced) {
    ++context_.counters.failures;
    m.failed = true;
    // Memory can always be read; `source` says that its bytes are not those written.
    if (sent.first && m.from != kNoTier && e.cause != event::Failed::no_room) {
      const bool judged = context_.memory(m.from) || m.kind == MoveKind::flush;
      m.unreadable |= judged ? e.cause == event::Failed::source : !context_.machine.ephemeral;
    }
  }
  transfers_.remove_chunk(m, sent.offset);
  if (m.cancelled) {
    if (m.in_flight == 0) abort_move(sent.move);
  } else {
    cancel_move(sent.move);
  }
}

// Counts the chunks that have arrived, and completes the move with the last.
void Outcomes::settle(MoveIndex index) {
  Move& m = transfers_[index];
  std::size_t finished = 0;
  while (finished < m.chunks.size() && arrived(m, m.chunks[finished])) m.done += m.chunks[finished++].length;
  m.chunks.erase(m.chunks.begin(), m.chunks.begin() + static_cast<std::ptrdiff_t>(finished));
  // Where the rest of a replica is, its first bytes come later.
  if (m.to != kNoTier && m.first == 0) table_[m.checkpoint].at[m.to].watermark = m.done;
  if (m.done == m.total)
    complete_move(index);
  else if (m.done >= m.until)
    transfers_.turn(index);
}

// Sends nothing more of a move, which ends when every command of it has been reported.
void Outcomes::cancel_move(MoveIndex index) {
  if (transfers_.cancel(index)) abort_move(index);
}

void Outcomes::undo_split(Slot slot) {
  Checkpoint& c = table_[slot];
  if (!c.splitting()) return;
  const Split parts = c.split;
  for (const TierIndex t : {parts.on, parts.rest}) {
    if (const MoveIndex filler = c.at[t].filler; filler != kNoMove) {
      if (!transfers_[filler].failed) transfers_[filler].displaced = true;
      cancel_move(filler);
    } else if (c.at[t].state == ReplicaState::writing && c.at[t].uses == 0) {
      replicas_.remove(slot, t, false);
    }
  }
}

// Fails the copies in stream order that were to come after those of `filler`, and read from `from` on.
void Outcomes::spoil_readers(const Move& filler, Bytes from, bool displaced) {
  const std::vector<MoveIndex> others = table_[filler.checkpoint].moves;
  for (MoveIndex i : others) {
    Move& reader = transfers_[i];
    if (!reader.live || reader.from != filler.to || reader.chunks.empty()) continue;
    if (const Chunk& last = reader.chunks.back(); last.offset + last.length <= from) continue;
    (displaced && !reader.failed ? reader.displaced : reader.failed) = true;
    context_.out->spoiled.push_back(reader.request);
    cancel_move(i);
  }
}

void Outcomes::complete_move(MoveIndex index) {
  const Move& m = transfers_[index];
  const MoveKind kind = m.kind;
  const Slot slot = m.checkpoint;
  const TierIndex from = m.from, to = m.to;
  const RequestId request = m.request;
  const bool part = m.part;
  transfers_.end(index);
  Checkpoint& c = table_[slot];
  switch (kind) {
    case MoveKind::write: {
      table_.set_state(slot, to, ReplicaState::written);
      table_.set_stored(c);
      replicas_.hints_changed(slot);
      calls_.answer(calls_.at(request), Reason::ok);
      start_parked(slot);
      break;
    }
    case MoveKind::read: {
      Request& r = calls_.at(request);
      const bool keep = r.keep;
      replicas_.release_use(slot, from);
      calls_.answer(r, Reason::ok);
      finish_read(slot, keep);
      discard_failed(slot);
      return;
    }
    case MoveKind::flush:
      if (!part) {
        table_.set_state(slot, to, ReplicaState::written);
        c.at[to].watermark = c.bytes_on(to);
      } else if (c.at[c.split.on].filler == kNoMove && c.at[c.split.rest].filler == kNoMove) {
        table_.set_state(slot, c.split.on, ReplicaState::written);
        ++c.at[c.split.rest].uses;
      }
      c.flush_failures = 0;
      if (context_.keeps(from)) c.filed[from].note_read();
      replicas_.release_use(slot, from);
      break;
    case MoveKind::prefetch:
      table_.set_state(slot, to, ReplicaState::read_complete);
      c.at[to].wanted = c.hint != RestoreOrder::kNone;
      c.at[from].wanted = false;
      c.prefetch_failures = 0;
      replicas_.release_use(slot, from);
      break;
    case MoveKind::check:
      c.filed[from].note_read();
      replicas_.release_use(slot, from);
      break;
  }
  replicas_.refresh(slot);
  discard_failed(slot);
  if (!waits_.empty()) waits_.progress(slot);
  if (kind == MoveKind::write && c.flush_to != kNoTier) replicas_.refresh(slot);
  replicas_.try_release(slot);
}

// Cancelled or failed, with every command reported: its target goes, its source is as before, its call is answered or
// tries another way. What was being read out of the target has lost its source.
void Outcomes::abort_move(MoveIndex index) {
  const Move m = transfers_[index];
  const Slot slot = m.checkpoint;
  transfers_.end(index);
  Checkpoint& c = table_[slot];
  if (m.to != kNoTier) {
    if (c.part_on(m.to)) undo_split(slot);
    const std::vector<MoveIndex> others = c.moves;
    for (MoveIndex i : others)
      if (transfers_[i].live && transfers_[i].from == m.to) cancel_move(i);
    const Replica& target = c.at[m.to];
    if (target.uses == 0 && (target.state == ReplicaState::writing || target.state == ReplicaState::reading))
      replicas_.remove(slot, m.to, false);
  }
  if (m.from != kNoTier) replicas_.release_use(slot, m.from);

  switch (m.kind) {
    case MoveKind::write: {
      Request& r = calls_.at(m.request);
      if (m.failed) r.excluded |= 1u << m.to;
      r.move = kNoMove;
      const bool hopeless = m.failed && (r.ordered || !space_.fits_somewhere(c.bytes, r.excluded));
      if (r.cancelled || c.nameless() || hopeless) {
        // What was consumed meanwhile is lost as well, unless its name has been written anew.
        const bool lost = hopeless && (!c.nameless() || table_.history_of(c).consumed.contains(c.version));
        const Reason why = r.cancelled ? Reason::cancelled : lost ? Reason::lost : Reason::dropped;
        undo_write(slot, hopeless ? WriteState::lost : WriteState::unwritten);
        calls_.answer(r, why,
                      "version " + std::to_string(table_[slot].version) +
                          (hopeless ? " could not be written to any tier" : " was given up"));
        if (why == Reason::lost) context_.out->failures.push_back({table_.ref(slot), m.to, true});
        replicas_.try_release(slot);
        return;
      } else {
        calls_.wait(r);
      }
      break;
    }
    case MoveKind::read: {
      Request& r = calls_.at(m.request);
      r.move = kNoMove;
      r.restored = m.done;
      if (m.failed) r.excluded |= 1u << m.from;
      if (m.unreadable) replicas_.mark_failed(slot, m.from);
      if (r.cancelled || (m.failed && on_its_stream(m))) r.excluded = ~0u;
      replicas_.refresh(slot);
      start_read(r);
      discard_failed(slot);
      return;
    }
    case MoveKind::flush:
      if (m.from == c.makes_way) c.makes_way = kNoTier;
      if (m.failed) {
        ++c.flush_failures;
        c.flush_retry = context_.now + kRetryAfter;
        context_.out->failures.push_back({table_.ref(slot), m.to, false});
        if (m.unreadable) replicas_.mark_failed(slot, m.from);
      }
      break;
    case MoveKind::prefetch:
      if (m.failed) {
        ++c.prefetch_failures;
        if (m.unreadable && context_.keeps(m.from) && table_.safe_below(c, m.from)) replicas_.mark_failed(slot, m.from);
        for (RequestId id : calls_.of(slot, [](const Request& r) { return r.kind == Request::Kind::borrow; })) {
          calls_.at(id).excluded |= 1u << m.from;
          if (m.unreadable) replicas_.mark_failed(slot, m.from);
        }
      }
      break;
    case MoveKind::check:
      if (m.failed) ++c.prefetch_failures;
      if (m.unreadable) replicas_.mark_failed(slot, m.from);
      break;
  }
  replicas_.refresh(slot);
  discard_failed(slot);
  replicas_.try_release(slot);
}

// From the fastest complete replica, or from what is being brought (or written) to a faster tier, chunk by chunk.
void Outcomes::start_read(Request& r) {
  const Slot slot = r.checkpoint;
  Checkpoint& c = table_[slot];
  if (c.bytes == 0 && c.stored()) {
    const bool keep = r.keep;
    calls_.answer(r, Reason::ok);
    return finish_read(slot, keep);
  }
  TierIndex from = kNoTier;
  for (TierIndex t = 0; t < context_.tiers() && from == kNoTier; ++t) {
    if (r.excluded >> t & 1) continue;
    const Replica& rep = c.at[t];
    if (good(rep) || transfers_.filling(rep)) from = t;
  }
  if (from == kNoTier && c.exists() && !c.stored() && !c.nameless() && !r.cancelled)
    return;  // parked: its write waits for room
  if (from == kNoTier) {
    const bool keep_hint = r.hint_taken;
    const bool cancelled = r.cancelled;
    --c.readers;
    if (keep_hint && !c.nameless()) replicas_.hint(c.history, c.version, true);
    calls_.answer(r,
                  cancelled                                    ? Reason::cancelled
                  : c.write == WriteState::unwritten           ? Reason::unknown_version
                  : c.exists() && c.name == NameState::dropped ? Reason::dropped
                                                               : Reason::lost,
                  key_text(c) + (c.lost_why                         ? " is lost: " + *c.lost_why
                                 : c.write != WriteState::unwritten ? " could not be read from any tier"
                                                                    : " was not written after all"));
    replicas_.try_release(slot);
    return;
  }
  if (!context_.memory(from)) ++context_.counters.direct_reads;
  const MoveIndex filler = c.at[from].filler;
  if (filler != kNoMove) transfers_.make_demand(filler, r.since);
  r.move = replicas_.start_move(MoveKind::read, slot, from, kNoTier, true, r.since, &r);
  Move& m = transfers_[r.move];
  m.issued = m.done = r.restored;
  settle(r.move);
}

// Starts the restores of a checkpoint that had no bytes yet: it is being written now, or never will be.
void Outcomes::start_parked(Slot slot) {
  const auto parked = [](const Request& r) { return r.kind == Request::Kind::restore && r.move == kNoMove; };
  for (RequestId id : calls_.of(slot, parked)) start_read(calls_.at(id));
}

void Outcomes::finish_read(Slot slot, bool keep) {
  Checkpoint& c = table_[slot];
  --c.readers;
  if (c.hint == RestoreOrder::kNone)
    for (Replica& r : c.at) r.wanted = false;
  if (!keep && !c.nameless() && c.hint == RestoreOrder::kNone && c.stored()) {
    if (context_.machine.ephemeral) {
      begin_delete(slot, true);
      return;
    }
    if (c.name == NameState::named) c.become(NameState::consumed);
  }
  replicas_.refresh(slot);
  replicas_.try_release(slot);
}

// Ends a call that waits for room, which therefore has nothing in flight. False: it does not wait.
bool Outcomes::stop_waiting(RequestId id, Reason reason, const std::string& detail) {
  Request& r = calls_.at(id);
  if (!r.waiting) return false;
  const Slot slot = r.checkpoint;
  const bool borrow = r.kind == Request::Kind::borrow;
  const bool hint_taken = r.hint_taken;
  Checkpoint& c = table_[slot];
  calls_.answer(r, reason, key_text(c) + ": " + detail);
  if (!borrow) {
    undo_write(slot);
  } else {
    --c.readers;
    if (hint_taken && !c.nameless()) replicas_.hint(c.history, c.version, true);
  }
  replicas_.try_release(slot);
  return true;
}

// What could not be read, or is not what was written, and what its tier has let go, leaves with its last reader, and
// the checkpoint its name if nothing else holds its bytes or will.
void Outcomes::discard_failed(Slot slot) {
  Checkpoint& c = table_[slot];
  if (c.nameless() || !c.stored()) return;
  for (TierIndex t = context_.first_keeping; context_.several_keep() && t < context_.tiers(); ++t)
    if (Replica& r = c.at[t]; r.leaving && complete(r.state)) {
      r.leaving = table_.kept_beside(c, t);  // else it has become the only one
      if (r.leaving && r.uses == 0) replicas_.remove(slot, t, false);
    }
  bool any = false, hope = false;
  TierIndex lowest = kNoTier;  // that could not be read
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    const Replica& r = c.at[t];
    if (r.failed) any = true, lowest = t;
    hope |= good(r) || (r.filler != kNoMove && !transfers_[r.filler].cancelled);
  }
  if (!any) return;
  for (TierIndex t = 0; t < context_.tiers(); ++t)
    if (const Replica& r = c.at[t]; r.failed && complete(r.state) && r.uses == 0) replicas_.remove(slot, t, false);
  if (hope) return;
  const std::string why = c.lost_why ? *c.lost_why : std::string();
  if (c.lost_why) table_.history_of(c).lost[c.version] = why;
  waits_.fail(slot, c.lost_why ? why : "it could not be read from where it was");
  context_.out->failures.push_back({table_.ref(slot), lowest, true, why});
  undo_write(slot, WriteState::lost);
  replicas_.try_release(slot);
}

// The checkpoint leaves the table of names; its bytes follow when nothing uses them.
void Outcomes::begin_delete(Slot slot, bool consumed) {
  Checkpoint& c = table_[slot];
  if (c.nameless()) return;
  History& h = table_.history_of(c);
  while (table_.remove_first_hint(slot)) {
  }
  table_.unname(slot);
  c.become(consumed ? NameState::restored : NameState::dropped);
  for (TierIndex t = 0; t < context_.tiers(); ++t) {  // readable or not, it is to go
    Replica& r = c.at[t];
    r.failed = r.failed && context_.memory(t) && space_.in_lost_memory(c, t);
  }
  if (consumed) h.consumed.insert(c.version);
  const std::vector<MoveIndex> mine = c.moves;
  for (MoveIndex m : mine) {
    const Move& move = transfers_[m];
    if (!move.live) continue;
    if (move.kind == MoveKind::flush && !move.cancelled) ++context_.counters.dropped_flushes;
    // Also the write, under a restore in stream order that has returned.
    const bool feeds_reader =
        c.readers > 0 && (move.kind == MoveKind::prefetch || (move.kind == MoveKind::write && consumed));
    if (move.kind != MoveKind::read && !feeds_reader) cancel_move(m);
  }
  waits_.progress(slot);
  replicas_.refresh(slot);
  replicas_.try_release(slot);
}

void Outcomes::drop(Slot s) {
  Checkpoint& c = table_[s];
  if (!c.exists()) {  // only hinted
    while (c.hint != RestoreOrder::kNone) replicas_.withdraw_hint(s);
    replicas_.try_release(s);
    return;
  }
  // Calls that wait for room for it have nothing in flight; those that copy end when their copies have.
  const std::vector<RequestId> stopped = calls_.of(s, [](const Request& r) { return r.waiting; });
  begin_delete(s, false);
  for (RequestId id : stopped)  // a borrow may have ended with the write that it waited for
    if (calls_.find(id) != nullptr) stop_waiting(id, Reason::dropped, key_text(c) + " was dropped meanwhile");
  replicas_.try_release(s);
}

// Makes a checkpoint one that is not written, or lost: hints for it wait again.
void Outcomes::undo_write(Slot slot, WriteState to) {
  Checkpoint& c = table_[slot];
  if (!c.nameless() && std::exchange(c.hinted, false)) replicas_.withdraw_hint(slot);
  if (!c.nameless()) table_.history_of(c).unwritten += table_.history_of(c).order.count(slot);
  if (c.live() && c.write != to) c.become(to);  // its readers may have been the last to hold it
  if (c.name == NameState::consumed) c.become(NameState::named);
  bool lingering = c.readers > 0 || !c.moves.empty();
  for (const Replica& r : c.at) lingering |= r.state != ReplicaState::gone;
  if (lingering && !c.nameless()) table_.detach(slot);
  waits_.progress(slot);
  replicas_.refresh(slot);
  start_parked(slot);
  calls_.for_waiting([&](const Request& r) {
    if (r.checkpoint == slot && r.kind == Request::Kind::borrow)
      c.write == WriteState::lost ? stop_waiting(r.id, Reason::lost, "no tier could deliver it")
                                  : stop_waiting(r.id, Reason::unknown_version, "it was not written after all");
  });
}

}  // namespace ebb::planner
