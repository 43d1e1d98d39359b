// Transfers: their beginning, and what becomes of them.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "planner/state.hpp"

namespace ebb::policy {
namespace {

constexpr Time kRetryAfter = 1'000'000'000;  // before a flush that failed for good is tried again

}  // namespace

void Planner::State::on(HistoryId, const event::Carried& e) { transfers.carried(e.command); }

void Planner::State::on(HistoryId, const event::Finished& e) {
  const Transfers::Sent sent = transfers.ended(e.command, false);
  Move& m = transfers[sent.move];
  if (m.cancelled) {
    transfers.remove_chunk(m, sent.offset);
    if (m.in_flight == 0) abort_move(sent.move);
    return;
  }
  Chunk& chunk = transfers.chunk_of(m, sent.offset);
  chunk.moving = false;
  if (chunk.hop > 0) transfers.return_slot(m, chunk, chunk.hop - 1);
  if (++chunk.hop < m.route.hops) return;
  transfers.return_slots(m, chunk);
  context.dirty |= transfers.room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
  settle(sent.move);
}

void Planner::State::settle(MoveIndex index) {
  Move& m = transfers[index];
  std::size_t finished = 0;
  while (finished < m.chunks.size() && arrived(m, m.chunks[finished])) m.done += m.chunks[finished++].length;
  m.chunks.erase(m.chunks.begin(), m.chunks.begin() + static_cast<std::ptrdiff_t>(finished));
  if (m.to != kNoTier) table[m.checkpoint].at[static_cast<std::size_t>(m.to)].watermark = m.done;
  if (m.done == m.total) complete_move(index);
}

void Planner::State::on(HistoryId, const event::Failed& e) {
  const Transfers::Sent sent = transfers.ended(e.command, true);
  Move& m = transfers[sent.move];
  // No word on the transfer, nor on the application's stream, which has seen
  // nothing of it.
  const Checkpoint& c = table[m.checkpoint];
  const bool nowhere = m.to != kNoTier && space.beyond(c, m.to);
  const bool unread = m.from != kNoTier && space.beyond(c, m.from) &&
                      c.at[static_cast<std::size_t>(m.from)].watermark < sent.offset + sent.length;
  const bool no_memory = e.cause == event::Failed::no_room && (nowhere || unread);
  const bool homeless = nowhere && !m.ordered;  // not to be tried again
  if (!m.failed) m.displaced |= no_memory || homeless;
  if (m.to != kNoTier) spoil_readers(m, sent.offset, no_memory);
  // What is full stays full for longer than retries take; what an application's
  // stream was given cannot be given again.
  const bool hopeless = e.cause != event::Failed::passing || on_its_stream(m);
  if (!m.cancelled && !m.displaced && !hopeless && m.retries < context.machine.max_retries) {
    ++m.retries;
    ++context.counters.retries;
    Chunk& chunk = transfers.chunk_of(m, sent.offset);
    chunk.moving = false;
    if (sent.hop == 0) transfers.return_slots(m, chunk);  // others may need them meanwhile
    return;
  }
  if (!m.displaced) {
    ++context.counters.failures;
    m.failed = true;
    // What lies in memory can always be read; that its bytes are not those
    // written is said by `source`.
    const bool unreadable = sent.hop == 0 && m.from != kNoTier && e.cause != event::Failed::no_room;
    m.unreadable |=
        unreadable && (context.memory(m.from) ? e.cause == event::Failed::source : !context.machine.ephemeral);
  }
  transfers.remove_chunk(m, sent.offset);
  if (m.cancelled) {
    if (m.in_flight == 0) abort_move(sent.move);
  } else {
    cancel_move(sent.move);
  }
}

// Copies in stream order that were to come after those of `filler`, and read
// from `from` on.
void Planner::State::spoil_readers(const Move& filler, Bytes from, bool displaced) {
  const std::vector<MoveIndex> others = table[filler.checkpoint].moves;
  for (MoveIndex i : others) {
    Move& reader = transfers[i];
    if (!reader.live || reader.from != filler.to || reader.chunks.empty()) continue;
    if (const Chunk& last = reader.chunks.back(); last.offset + last.length <= from) continue;
    (displaced && !reader.failed ? reader.displaced : reader.failed) = true;
    context.out->spoiled.push_back(reader.request);
    cancel_move(i);
  }
}

void Planner::State::on(HistoryId, const event::Ready& e) {
  Request* const r = calls.find(e.request);
  if (r == nullptr) return;
  r->ready = true;
  if (r->move != kNoMove) transfers.unhold(transfers[r->move]);
}

// Nothing more is sent; it ends when every command on it has reported.
void Planner::State::cancel_move(MoveIndex index) {
  if (transfers.cancel(index)) abort_move(index);
}

void Planner::State::complete_move(MoveIndex index) {
  const Move& m = transfers[index];
  const MoveKind kind = m.kind;
  const Slot slot = m.checkpoint;
  const TierIndex from = m.from, to = m.to;
  const RequestId request = m.request;
  transfers.end(index);
  Checkpoint& c = table[slot];
  switch (kind) {
    case MoveKind::write: {
      table.set_state(slot, to, ReplicaState::written);
      table.set_stored(c);
      replicas.hints_changed(slot);
      calls.answer(calls.at(request), Reason::ok);
      start_parked(slot);
      break;
    }
    case MoveKind::read: {
      Request& r = calls.at(request);
      const bool keep = r.keep;
      replicas.release_use(slot, from);
      calls.answer(r, Reason::ok);
      finish_read(slot, keep);
      give_up_failed(slot);
      return;
    }
    case MoveKind::flush:
      table.set_state(slot, to, ReplicaState::written);
      c.flush_failures = 0;
      replicas.release_use(slot, from);
      break;
    case MoveKind::prefetch:
      table.set_state(slot, to, ReplicaState::read_complete);
      c.at[static_cast<std::size_t>(to)].wanted = c.hint != RestoreOrder::kNone;
      c.at[static_cast<std::size_t>(from)].wanted = false;
      c.prefetch_failures = 0;
      replicas.release_use(slot, from);
      break;
    case MoveKind::check:
      c.intact = true;
      replicas.release_use(slot, from);
      break;
  }
  replicas.refresh(slot);
  give_up_failed(slot);
  if (!waits.empty()) waits.progress(slot);
  if (kind == MoveKind::write && c.flush_to != kNoTier) replicas.refresh(slot);
  replicas.try_release(slot);
}

// What could not be read, or is not what was written, leaves its tier with its
// last reader, and the checkpoint its name if nothing else holds its bytes or
// will.
void Planner::State::give_up_failed(Slot slot) {
  Checkpoint& c = table[slot];
  if (!c.live || c.condemned || !c.stored) return;
  bool any = false, hope = false;
  for (TierIndex t = 0; t < context.tiers(); ++t) {
    const Replica& r = c.at[static_cast<std::size_t>(t)];
    any |= r.failed;
    hope |= good(r) || transfers.filling(r);
  }
  if (!any) return;
  for (TierIndex t = 0; t < context.tiers(); ++t)
    if (const Replica& r = c.at[static_cast<std::size_t>(t)]; r.failed && complete(r.state) && r.uses == 0)
      replicas.remove(slot, t, false);
  if (hope) return;
  c.write_failed = true;
  if (!c.lost_why.empty()) {
    table.history_of(c).lost[c.version] = c.lost_why;
    waits.fail(slot, c.lost_why);
  }
  context.out->failures.push_back({table.ref(slot), context.last_tier(), true, c.lost_why});
  unwrite(slot);
  replicas.try_release(slot);
}

// Cancelled or failed, with every command reported: its target goes, its source
// is as before, its call is answered or tries another way. What was being read
// out of the target has lost its source.
void Planner::State::abort_move(MoveIndex index) {
  const Move m = transfers[index];
  const Slot slot = m.checkpoint;
  transfers.end(index);
  Checkpoint& c = table[slot];
  if (m.to != kNoTier) {
    const std::vector<MoveIndex> others = c.moves;
    for (MoveIndex i : others)
      if (transfers[i].live && transfers[i].from == m.to) cancel_move(i);
    const Replica& target = c.at[static_cast<std::size_t>(m.to)];
    if (target.uses == 0 && (target.state == ReplicaState::writing || target.state == ReplicaState::reading))
      replicas.remove(slot, m.to, false);
  }
  if (m.from != kNoTier) replicas.release_use(slot, m.from);

  switch (m.kind) {
    case MoveKind::write: {
      Request& r = calls.at(m.request);
      if (m.failed) r.excluded |= 1u << m.to;
      r.move = kNoMove;
      const bool hopeless = m.failed && (r.ordered || !space.fits_somewhere(c.bytes, r.excluded));
      if (r.cancelled || c.condemned || hopeless) {
        // What was consumed meanwhile is lost as well, unless its name has been
        // written anew.
        const bool lost = hopeless && (!c.condemned || table.history_of(c).consumed.contains(c.version));
        const Reason why = r.cancelled ? Reason::cancelled : lost ? Reason::lost : Reason::dropped;
        c.write_failed = hopeless;
        unwrite(slot);
        calls.answer(r, why,
                     "version " + std::to_string(table[slot].version) +
                         (hopeless ? " could not be written to any tier" : " was given up"));
        if (why == Reason::lost) context.out->failures.push_back({table.ref(slot), m.to, true});
        replicas.try_release(slot);
        return;
      } else {
        calls.wait(r);
      }
      break;
    }
    case MoveKind::read: {
      Request& r = calls.at(m.request);
      r.move = kNoMove;
      r.restored = m.done;
      if (m.failed) r.excluded |= 1u << m.from;
      if (m.unreadable) replicas.mark_failed(slot, m.from);
      if (r.cancelled || (m.failed && on_its_stream(m))) r.excluded = ~0u;
      replicas.refresh(slot);
      start_read(r);
      give_up_failed(slot);
      return;
    }
    case MoveKind::flush:
      if (m.failed) {
        c.flush_failures = static_cast<std::uint8_t>(std::min(255, c.flush_failures + 1));
        c.flush_retry = context.now + kRetryAfter;
        context.out->failures.push_back({table.ref(slot), m.to, false});
        if (m.unreadable) replicas.mark_failed(slot, m.from);
      }
      break;
    case MoveKind::prefetch:
      if (m.failed) {
        c.prefetch_failures = static_cast<std::uint8_t>(std::min(255, c.prefetch_failures + 1));
        for (RequestId id : calls.of(slot, [](const Request& r) { return r.kind == Request::Kind::borrow; })) {
          calls.at(id).excluded |= 1u << m.from;
          if (m.unreadable) replicas.mark_failed(slot, m.from);
        }
      }
      break;
    case MoveKind::check:
      if (m.failed) c.prefetch_failures = static_cast<std::uint8_t>(std::min(255, c.prefetch_failures + 1));
      if (m.unreadable) replicas.mark_failed(slot, m.from);
      break;
  }
  replicas.refresh(slot);
  give_up_failed(slot);
  replicas.try_release(slot);
}

}  // namespace ebb::policy
