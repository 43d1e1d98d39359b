// Restores, borrows and what they read from.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::on(HistoryId client, const event::Restore& e) {
  const Slot slot = lookup(client, e.version);
  if (slot == kNoSlot || !checkpoints[slot].exists || checkpoints[slot].reserving)
    return refuse_missing(e.request, client, e.version);
  Checkpoint& c = checkpoints[slot];
  histories[client].reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::restore;
  r.checkpoint = slot;
  r.since = now;
  r.keep = e.keep;
  r.ordered = e.ordered;
  r.found_on = fastest(c);
  ++c.readers;
  c.touched = ++sequence;
  r.hint_taken = remove_first_hint(slot);
  refresh(slot);
  Request& kept = requests.emplace(r.id, r).first->second;
  kept.distance = ready_successors(histories[client]);
  if (c.bytes == 0 && c.stored) {
    const bool keep = kept.keep;
    answer(kept, Reason::ok);
    finish_read(slot, keep);
    return;
  }
  start_read(kept);
}

// From the fastest complete replica, or from what is being brought (or written) to a faster tier, chunk by chunk.
void Planner::State::start_read(Request& r) {
  const Slot slot = r.checkpoint;
  Checkpoint& c = checkpoints[slot];
  if (c.bytes == 0 && c.stored) {
    const bool keep = r.keep;
    answer(r, Reason::ok);
    return finish_read(slot, keep);
  }
  TierIndex from = kNoTier;
  for (TierIndex t = 0; t < tiers() && from == kNoTier; ++t) {
    if (r.excluded >> t & 1) continue;
    const Replica& rep = c.at[static_cast<std::size_t>(t)];
    const bool filling = rep.filler != kNoMove && !moves[static_cast<std::size_t>(rep.filler)].cancelled;
    if (good(rep) || filling) from = t;
  }
  if (from == kNoTier && c.exists && !c.stored && !c.condemned && !r.cancelled)
    return;  // parked: its write waits for room
  if (from == kNoTier) {
    const bool keep_hint = r.hint_taken;
    const bool cancelled = r.cancelled;
    --c.readers;
    if (keep_hint && !c.condemned) {
      if (!c.exists) ++history_of(c).unwritten;
      history_of(c).order.prepend(slot);
      hints_changed(slot);
    }
    answer(r,
           cancelled                 ? Reason::cancelled
           : !c.exists               ? c.write_failed ? Reason::lost : Reason::unknown_version
           : c.condemned && !c.spent ? Reason::dropped
                                     : Reason::lost,
           key_text(c) + (!c.lost_why.empty()          ? " is lost: " + c.lost_why
                          : c.exists || c.write_failed ? " could not be read from any tier"
                                                       : " was not written after all"));
    try_release(slot);
    return;
  }
  if (!memory(from)) ++counters.direct_reads;
  const MoveIndex filler = c.at[static_cast<std::size_t>(from)].filler;
  if (filler != kNoMove) make_demand(filler, r.since);
  r.move = start_move(MoveKind::read, slot, from, kNoTier, r.id, true, r.since);
  Move& m = moves[static_cast<std::size_t>(r.move)];
  m.issued = m.done = r.restored;
  settle(r.move);
}

// Restores of what had no byte yet go on: it is being written now, or never will be.
void Planner::State::start_parked(Slot slot) {
  std::vector<RequestId> parked;
  for (const auto& [id, r] : requests)
    if (r.checkpoint == slot && r.kind == Request::Kind::restore && r.move == kNoMove) parked.push_back(id);
  std::sort(parked.begin(), parked.end());
  for (RequestId id : parked) start_read(requests.at(id));
}

// Hinted successors, from the first on, that are complete on the fastest tier (hpdc23 sec. 5.3.5, metric 3).
std::uint32_t Planner::State::ready_successors(History& h) const {
  Successors& ready = h.ready;
  ready.next = std::max(ready.next, h.order.head());
  for (; ready.next < h.order.tail(); ++ready.next) {
    const Slot slot = h.order.at(ready.next);
    if (slot == RestoreOrder::kWithdrawn || !checkpoints[slot].exists) continue;
    const Checkpoint& c = checkpoints[slot];
    if (!c.stored || (c.bytes > 0 && !good(c.at[0]))) break;
    ++ready.count;
  }
  return ready.count;
}

void Planner::State::finish_read(Slot slot, bool keep) {
  Checkpoint& c = checkpoints[slot];
  --c.readers;
  if (c.hint == RestoreOrder::kNone)
    for (Replica& r : c.at) r.wanted = false;
  if (!keep && !c.condemned && c.hint == RestoreOrder::kNone && c.stored) {
    if (machine.ephemeral) {
      condemn(slot, true);
      return;
    }
    c.consumed = true;
  }
  refresh(slot);
  try_release(slot);
}

void Planner::State::on(HistoryId client, const event::Borrow& e) {
  const Slot slot = lookup(client, e.version);
  if (slot == kNoSlot || !checkpoints[slot].exists || checkpoints[slot].reserving)
    return refuse_missing(e.request, client, e.version);
  Checkpoint& c = checkpoints[slot];
  if (!memory(0)) return answer_plain(e.request, Reason::no_such_tier, "the fastest tier is not memory");
  if (c.bytes > 0 && footprint(0, c.bytes) > maps[0].largest_segment())
    return answer_plain(e.request, Reason::too_large, std::to_string(c.bytes) + " bytes; " + describe_tiers());
  histories[client].reading = true;
  Request r;
  r.id = e.request;
  r.kind = Request::Kind::borrow;
  r.checkpoint = slot;
  r.since = now;
  r.deadline = e.timeout >= kNever - now ? kNever : now + e.timeout;
  r.found_on = fastest(c);
  ++c.readers;
  c.touched = ++sequence;
  r.hint_taken = remove_first_hint(slot);
  refresh(slot);
  Request& kept = requests.emplace(r.id, r).first->second;
  if (!waiting.empty() || !place(kept, false, false)) {
    kept.waiting = true;
    waiting.push_back(kept.id);
  }
}

void Planner::State::on(HistoryId, const event::Release& e) {
  const auto hold = give_back(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  if (checkpoints[slot].bytes > 0) release_use(slot, 0);
  if (!hold->memory_only) finish_read(slot, e.keep);
  refresh(slot);
  give_up_failed(slot);
  try_release(slot);
}

}  // namespace ebb::policy
