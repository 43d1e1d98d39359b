// Transfers: their beginning, and what becomes of them.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "planner/state.hpp"

namespace ebb::policy {
namespace {

constexpr Time kRetryAfter = 1'000'000'000;  // before a flush that failed for good is tried again

}  // namespace

const Route& Planner::State::route_of(TierIndex from, TierIndex to) const {
  const int n = tiers(), a = from == kNoTier ? n : from, b = to == kNoTier ? n : to;
  return routes[static_cast<std::size_t>(a * (n + 1) + b)];
}

MoveIndex Planner::State::start_move(MoveKind kind, Slot slot, TierIndex from, TierIndex to, RequestId request,
                                     bool demand, Time since) {
  MoveIndex index;
  if (free_moves.empty()) {
    index = static_cast<MoveIndex>(moves.size());
    moves.emplace_back();
  } else {
    index = free_moves.back();
    free_moves.pop_back();
  }
  Move& m = moves[static_cast<std::size_t>(index)];
  std::vector<Chunk> memory = std::move(m.chunks);
  memory.clear();
  m = Move{};
  m.chunks = std::move(memory);
  Checkpoint& c = checkpoints[slot];
  m.live = true;
  m.kind = kind;
  m.demand = demand;
  m.checkpoint = slot;
  m.request = request;
  m.from = from;
  m.to = to;
  m.route = route_of(from, to);
  if (kind == MoveKind::check) m.route.hops = 1;  // into the ring, and no farther
  m.total = c.bytes;
  m.since = since;
  if (request != 0) {
    const Request& r = requests.at(request);
    m.ordered = r.ordered;
    m.held = r.ordered && !r.ready && m.route.hops > 1;
    held_moves += m.held ? 1 : 0;
  }
  if (to != kNoTier) c.at[static_cast<std::size_t>(to)].filler = index;
  if (from != kNoTier) ++c.at[static_cast<std::size_t>(from)].uses;
  for (int h = 0; h < m.route.hops; ++h) link_of(m, h).moves.push_back(index);
  c.moves.push_back(index);
  ++live_moves;
  refresh(slot);
  if (kind == MoveKind::write) start_parked(slot);
  return index;
}

void Planner::State::make_demand(MoveIndex index, Time since) {
  Move& m = moves[static_cast<std::size_t>(index)];
  if (m.demand && m.since <= since) return;
  m.since = m.demand ? std::min(m.since, since) : since;
  m.demand = true;
  if (m.from == kNoTier) return;
  const MoveIndex upstream = checkpoints[m.checkpoint].at[static_cast<std::size_t>(m.from)].filler;
  if (upstream != kNoMove) make_demand(upstream, since);
}

// The link goes on meanwhile.
void Planner::State::on(HistoryId, const event::Carried& e) {
  const auto it = commands.find(e.command);
  if (it == commands.end() || it->second.carried)
    throw std::logic_error("a command was reported twice, or never given");
  const Move& m = moves[static_cast<std::size_t>(it->second.move)];
  if (on_its_stream(m)) throw std::logic_error("a copy on the application's stream is over when that says so");
  Link& link = link_of(m, it->second.hop);
  it->second.carried = true;
  link.estimate.finished(now, it->second.length);
  ++link.carried;
  dirty |= room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
}

void Planner::State::on(HistoryId, const event::Finished& e) {
  const auto it = commands.find(e.command);
  if (it == commands.end()) throw std::logic_error("a command was reported twice, or never given");
  const CommandEntry entry = it->second;
  commands.erase(it);
  --commands_in_flight;
  Move& m = moves[static_cast<std::size_t>(entry.move)];
  Link& link = link_of(m, entry.hop);
  if (entry.carried)
    --link.carried;
  else if (!on_its_stream(m))
    link.estimate.finished(now, entry.length);
  link.use.bytes += entry.length;
  ++link.use.transfers;
  --m.in_flight;
  auto chunk = std::find_if(m.chunks.begin(), m.chunks.end(), [&](const Chunk& k) { return k.offset == entry.offset; });
  if (m.cancelled) {
    return_slots(m, *chunk);
    m.chunks.erase(chunk);
    if (m.in_flight == 0) abort_move(entry.move);
    return;
  }
  chunk->moving = false;
  if (chunk->hop > 0) return_slot(m, *chunk, chunk->hop - 1);
  if (++chunk->hop < m.route.hops) return;
  return_slots(m, *chunk);
  dirty |= room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
  settle(entry.move);
}

void Planner::State::settle(MoveIndex index) {
  Move& m = moves[static_cast<std::size_t>(index)];
  std::size_t finished = 0;
  while (finished < m.chunks.size() && arrived(m, m.chunks[finished])) m.done += m.chunks[finished++].length;
  m.chunks.erase(m.chunks.begin(), m.chunks.begin() + static_cast<std::ptrdiff_t>(finished));
  if (m.to != kNoTier) checkpoints[m.checkpoint].at[static_cast<std::size_t>(m.to)].watermark = m.done;
  if (m.done == m.total) complete_move(index);
}

void Planner::State::on(HistoryId, const event::Failed& e) {
  const auto it = commands.find(e.command);
  if (it == commands.end()) throw std::logic_error("a command was reported twice, or never given");
  const CommandEntry entry = it->second;
  commands.erase(it);
  --commands_in_flight;
  Move& m = moves[static_cast<std::size_t>(entry.move)];
  Link& link = link_of(m, entry.hop);
  if (entry.carried)
    --link.carried;
  else if (!on_its_stream(m))
    link.estimate.failed(now);
  ++link.use.failures;
  --m.in_flight;
  auto chunk = std::find_if(m.chunks.begin(), m.chunks.end(), [&](const Chunk& k) { return k.offset == entry.offset; });
  // No word on the transfer, nor on the application's stream, which has seen nothing of it.
  const Checkpoint& c = checkpoints[m.checkpoint];
  const bool nowhere = m.to != kNoTier && beyond(c, m.to);
  const bool unread = m.from != kNoTier && beyond(c, m.from) &&
                      c.at[static_cast<std::size_t>(m.from)].watermark < entry.offset + entry.length;
  const bool no_memory = e.cause == event::Failed::no_room && (nowhere || unread);
  const bool homeless = nowhere && !m.ordered;  // not to be tried again
  if (!m.failed) m.displaced |= no_memory || homeless;
  if (m.to != kNoTier) spoil_readers(m, entry.offset, no_memory);
  // What is full stays full for longer than retries take; what an application's stream was given cannot be given again.
  const bool hopeless = e.cause != event::Failed::passing || on_its_stream(m);
  if (!m.cancelled && !m.displaced && !hopeless && m.retries < machine.max_retries) {
    ++m.retries;
    ++counters.retries;
    chunk->moving = false;
    if (entry.hop == 0) return_slots(m, *chunk);  // others may need them meanwhile
    return;
  }
  if (!m.displaced) {
    ++counters.failures;
    m.failed = true;
    // What lies in memory can always be read; that its bytes are not those written is said by `source`.
    const bool unreadable = entry.hop == 0 && m.from != kNoTier && e.cause != event::Failed::no_room;
    m.unreadable |= unreadable && (memory(m.from) ? e.cause == event::Failed::source : !machine.ephemeral);
  }
  return_slots(m, *chunk);
  m.chunks.erase(chunk);
  if (m.cancelled) {
    if (m.in_flight == 0) abort_move(entry.move);
  } else {
    cancel_move(entry.move);
  }
}

// Copies in stream order that were to come after those of `filler`, and read from `from` on.
void Planner::State::spoil_readers(const Move& filler, Bytes from, bool displaced) {
  const std::vector<MoveIndex> others = checkpoints[filler.checkpoint].moves;
  for (MoveIndex i : others) {
    Move& reader = moves[static_cast<std::size_t>(i)];
    if (!reader.live || reader.from != filler.to || reader.chunks.empty()) continue;
    if (const Chunk& last = reader.chunks.back(); last.offset + last.length <= from) continue;
    (displaced && !reader.failed ? reader.displaced : reader.failed) = true;
    out->spoiled.push_back(reader.request);
    cancel_move(i);
  }
}

// Every command that writes its target has been given.
bool Planner::State::all_out(const Move& m) const {
  if (m.issued < m.total) return false;
  return std::all_of(m.chunks.begin(), m.chunks.end(),
                     [&](const Chunk& k) { return arrived(m, k) || (k.moving && k.hop == m.route.hops - 1); });
}

void Planner::State::unhold(Move& m) {
  if (!std::exchange(m.held, false)) return;
  --held_moves;
  dirty = true;
}

void Planner::State::on(HistoryId, const event::Ready& e) {
  const auto it = requests.find(e.request);
  if (it == requests.end()) return;
  it->second.ready = true;
  if (it->second.move != kNoMove) unhold(moves[static_cast<std::size_t>(it->second.move)]);
}

// Nothing more is sent; it ends when every command on it has reported.
void Planner::State::cancel_move(MoveIndex index) {
  Move& m = moves[static_cast<std::size_t>(index)];
  if (m.cancelled) return;
  m.cancelled = true;
  unhold(m);
  dirty = true;
  std::erase_if(m.chunks, [&](Chunk& k) {
    if (!k.moving) return_slots(m, k);
    return !k.moving;
  });
  if (m.in_flight == 0) abort_move(index);
}

void Planner::State::end_move(MoveIndex index) {
  Move& m = moves[static_cast<std::size_t>(index)];
  Checkpoint& c = checkpoints[m.checkpoint];
  for (int h = 0; h < m.route.hops; ++h) std::erase(link_of(m, h).moves, index);
  std::erase(c.moves, index);
  if (m.to != kNoTier) c.at[static_cast<std::size_t>(m.to)].filler = kNoMove;
  m.live = false;
  --live_moves;
  free_moves.push_back(index);
  dirty = true;
}

void Planner::State::complete_move(MoveIndex index) {
  const Move& m = moves[static_cast<std::size_t>(index)];
  const MoveKind kind = m.kind;
  const Slot slot = m.checkpoint;
  const TierIndex from = m.from, to = m.to;
  const RequestId request = m.request;
  end_move(index);
  Checkpoint& c = checkpoints[slot];
  switch (kind) {
    case MoveKind::write: {
      set_state(slot, to, ReplicaState::written);
      stored(c);
      hints_changed(slot);
      answer(requests.at(request), Reason::ok);
      start_parked(slot);
      break;
    }
    case MoveKind::read: {
      Request& r = requests.at(request);
      const bool keep = r.keep;
      release_use(slot, from);
      answer(r, Reason::ok);
      finish_read(slot, keep);
      give_up_failed(slot);
      return;
    }
    case MoveKind::flush:
      set_state(slot, to, ReplicaState::written);
      c.flush_failures = 0;
      release_use(slot, from);
      break;
    case MoveKind::prefetch:
      set_state(slot, to, ReplicaState::read_complete);
      c.at[static_cast<std::size_t>(to)].wanted = c.hint != RestoreOrder::kNone;
      c.at[static_cast<std::size_t>(from)].wanted = false;
      c.prefetch_failures = 0;
      release_use(slot, from);
      break;
    case MoveKind::check:
      c.intact = true;
      release_use(slot, from);
      break;
  }
  refresh(slot);
  give_up_failed(slot);
  if (!waits.empty()) waits_progress(slot);
  if (kind == MoveKind::write && c.flush_to != kNoTier) refresh(slot);
  try_release(slot);
}

void Planner::State::mark_failed(Slot slot, TierIndex tier) {
  Checkpoint& c = checkpoints[slot];
  Replica& r = c.at[static_cast<std::size_t>(tier)];
  if (c.condemned || r.failed || !complete(r.state)) return;
  r.wanted = false;
  refresh(slot);
  r.failed = true;
  recount(slot);
  refresh(slot);
}

// What could not be read, or is not what was written, leaves its tier with its last reader, and the checkpoint its name
// if nothing else holds its bytes or will.
void Planner::State::give_up_failed(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  if (!c.live || c.condemned || !c.stored) return;
  bool any = false, hope = false;
  for (TierIndex t = 0; t < tiers(); ++t) {
    const Replica& r = c.at[static_cast<std::size_t>(t)];
    any |= r.failed;
    hope |= good(r) || (r.filler != kNoMove && !moves[static_cast<std::size_t>(r.filler)].cancelled);
  }
  if (!any) return;
  for (TierIndex t = 0; t < tiers(); ++t)
    if (const Replica& r = c.at[static_cast<std::size_t>(t)]; r.failed && complete(r.state) && r.uses == 0)
      remove_replica(slot, t, false);
  if (hope) return;
  c.write_failed = true;
  if (!c.lost_why.empty()) {
    history_of(c).lost[c.version] = c.lost_why;
    fail_waits(slot, c.lost_why);
  }
  out->failures.push_back({ref(slot), static_cast<TierIndex>(tiers() - 1), true, c.lost_why});
  unwrite(slot);
  try_release(slot);
}

// Cancelled or failed, with every command reported: its target goes, its source is as before, its call is answered or
// tries another way. What was being read out of the target has lost its source.
void Planner::State::abort_move(MoveIndex index) {
  const Move m = moves[static_cast<std::size_t>(index)];
  const Slot slot = m.checkpoint;
  end_move(index);
  Checkpoint& c = checkpoints[slot];
  if (m.to != kNoTier) {
    const std::vector<MoveIndex> others = c.moves;
    for (MoveIndex i : others)
      if (moves[static_cast<std::size_t>(i)].live && moves[static_cast<std::size_t>(i)].from == m.to) cancel_move(i);
    const Replica& target = c.at[static_cast<std::size_t>(m.to)];
    if (target.uses == 0 && (target.state == ReplicaState::writing || target.state == ReplicaState::reading))
      remove_replica(slot, m.to, false);
  }
  if (m.from != kNoTier) release_use(slot, m.from);

  const auto request = requests.find(m.request);
  switch (m.kind) {
    case MoveKind::write: {
      Request& r = request->second;
      if (m.failed) r.excluded |= 1u << m.to;
      r.move = kNoMove;
      const bool hopeless = m.failed && (r.ordered || !fits_somewhere(c.bytes, r.excluded));
      if (r.cancelled || c.condemned || hopeless) {
        // What was consumed meanwhile is lost as well, unless its name has been written anew.
        const bool lost = hopeless && (!c.condemned || history_of(c).consumed.contains(c.version));
        const Reason why = r.cancelled ? Reason::cancelled : lost ? Reason::lost : Reason::dropped;
        c.write_failed = hopeless;
        unwrite(slot);
        answer(r, why,
               "version " + std::to_string(checkpoints[slot].version) +
                   (hopeless ? " could not be written to any tier" : " was given up"));
        if (why == Reason::lost) out->failures.push_back({ref(slot), m.to, true});
        try_release(slot);
        return;
      } else {
        r.waiting = true;
        waiting.push_back(r.id);
      }
      break;
    }
    case MoveKind::read: {
      Request& r = request->second;
      r.move = kNoMove;
      r.restored = m.done;
      if (m.failed) r.excluded |= 1u << m.from;
      if (m.unreadable) mark_failed(slot, m.from);
      if (r.cancelled || (m.failed && on_its_stream(m))) r.excluded = ~0u;
      refresh(slot);
      start_read(r);
      give_up_failed(slot);
      return;
    }
    case MoveKind::flush:
      if (m.failed) {
        c.flush_failures = static_cast<std::uint8_t>(std::min(255, c.flush_failures + 1));
        c.flush_retry = now + kRetryAfter;
        out->failures.push_back({ref(slot), m.to, false});
        if (m.unreadable) mark_failed(slot, m.from);
      }
      break;
    case MoveKind::prefetch:
      if (m.failed) {
        c.prefetch_failures = static_cast<std::uint8_t>(std::min(255, c.prefetch_failures + 1));
        for (auto& [id, r] : requests)
          if (r.checkpoint == slot && r.kind == Request::Kind::borrow) {
            r.excluded |= 1u << m.from;
            if (m.unreadable) mark_failed(slot, m.from);
          }
      }
      break;
    case MoveKind::check:
      if (m.failed) c.prefetch_failures = static_cast<std::uint8_t>(std::min(255, c.prefetch_failures + 1));
      if (m.unreadable) mark_failed(slot, m.from);
      break;
  }
  refresh(slot);
  give_up_failed(slot);
  try_release(slot);
}

}  // namespace ebb::policy
