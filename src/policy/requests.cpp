// What the application asks for, and how it is answered.
#include <algorithm>

#include "policy/state.hpp"

namespace ebb::policy {
namespace {

std::string key_text(const Checkpoint& c) { return "version " + std::to_string(c.version); }

}  // namespace

void Planner::State::answer_plain(RequestId id, Reason reason, std::string detail) {
  Answer a;
  a.request = id;
  a.reason = reason;
  a.detail = std::move(detail);
  out->answers.push_back(std::move(a));
}

void Planner::State::answer(Request& r, Reason reason, std::string detail) {
  Answer a;
  a.request = r.id;
  a.reason = reason;
  a.checkpoint = ref(r.checkpoint);
  a.found_on = r.found_on;
  a.distance = r.distance;
  a.detail = std::move(detail);
  if (reason == Reason::ok && (r.kind == EventKind::reserve || r.kind == EventKind::borrow)) {
    a.place = {{Endpoint::tier, 0}, checkpoints[r.checkpoint].at[0].offset};
    held.emplace(r.id, r.checkpoint);
  }
  out->answers.push_back(std::move(a));
  if (r.waiting) waiting.erase(std::find(waiting.begin(), waiting.end(), r.id));
  requests.erase(r.id);
}

std::string Planner::State::describe_tiers() const {
  std::string text;
  for (TierIndex t = 0; t < tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    const TierSpec& spec = machine.tiers[i];
    const Bytes used = memory(t) ? arenas[i].used() : file_used[i];
    text += (t ? "; " : "") + spec.name + ": " + std::to_string(used) + " of " + std::to_string(spec.capacity) + " bytes used";
    if (memory(t)) text += ", largest gap " + std::to_string(arenas[i].largest_gap());
  }
  return text;
}

bool Planner::State::fits_somewhere(Bytes bytes, std::uint32_t excluded) const {
  for (TierIndex t = 0; t < tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    if (!(excluded >> t & 1) && footprint(t, bytes) <= arenas[i].capacity()) return true;
  }
  return false;
}

// --- writing --------------------------------------------------------------------------------------------------------

bool Planner::State::begin_write(const Event& e, Slot& slot, Request& r) {
  const Slot found = lookup(e.history, e.version);
  if (found != UINT32_MAX && checkpoints[found].exists) {
    answer_plain(e.request, Reason::version_exists, key_text(checkpoints[found]) + " was written already");
    return false;
  }
  const bool reserve = e.kind == EventKind::reserve;
  if (reserve && !memory(0)) {
    answer_plain(e.request, Reason::no_such_tier, "the fastest tier is not memory");
    return false;
  }
  if (e.bytes > 0 && (reserve ? footprint(0, e.bytes) > arenas[0].capacity() : !fits_somewhere(e.bytes))) {
    answer_plain(e.request, Reason::too_large, std::to_string(e.bytes) + " bytes; " + describe_tiers());
    return false;
  }
  slot = obtain(e.history, e.version);
  Checkpoint& c = checkpoints[slot];
  History& h = histories[e.history];
  h.unwritten -= h.order.count(slot);
  h.consumed.erase(e.version);
  h.reading = false;
  if (h.last_write > 0) h.write_interval += (now - h.last_write - h.write_interval) / 4;
  h.last_write = now;
  c.exists = true;
  c.reserving = reserve;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = ++sequence;
  r.id = e.request;
  r.kind = e.kind;
  r.checkpoint = slot;
  r.since = now;
  r.deadline = e.timeout >= kNever - now ? kNever : now + e.timeout;
  return true;
}

void Planner::State::on_checkpoint(const Event& e) {
  Slot slot;
  Request r;
  if (!begin_write(e, slot, r)) return;
  Request& kept = requests.emplace(r.id, r).first->second;
  if (e.bytes == 0) {
    checkpoints[slot].stored = true;
    hints_changed(slot);
    answer(kept, Reason::ok);
    return;
  }
  dirty = true;
  if (!waiting.empty() || !place(kept, false, false)) {
    kept.waiting = true;
    waiting.push_back(kept.id);
  }
}

void Planner::State::on_reserve(const Event& e) {
  Slot slot;
  Request r;
  if (!begin_write(e, slot, r)) return;
  Request& kept = requests.emplace(r.id, r).first->second;
  dirty = true;
  if (e.bytes == 0) return answer(kept, Reason::ok);
  if (!waiting.empty() || !place(kept, false, false)) {
    kept.waiting = true;
    waiting.push_back(kept.id);
  }
}

// The checkpoint that a granted reserve or borrow holds; nullopt: none (any more).
std::optional<Slot> Planner::State::give_back(RequestId held_by) {
  const auto it = held.find(held_by);
  if (it == held.end()) return std::nullopt;
  const Slot slot = it->second;
  held.erase(it);
  return slot;
}

void Planner::State::on_commit(const Event& e) {
  const auto slot = give_back(e.request);
  if (!slot) return;
  Checkpoint& c = checkpoints[*slot];
  if (c.bytes > 0) {
    c.at[0].uses = 0;
    c.at[0].watermark = c.bytes;
    set_state(*slot, 0, ReplicaState::written);
  }
  c.stored = true;
  c.reserving = false;
  if (c.condemned) {  // dropped meanwhile
    refresh(*slot);
    try_release(*slot);
  } else {
    hints_changed(*slot);
  }
}

void Planner::State::on_abandon(const Event& e) {
  const auto slot = give_back(e.request);
  if (!slot) return;
  unwrite(*slot);
  if (checkpoints[*slot].bytes > 0) {
    checkpoints[*slot].at[0].uses = 0;
    remove_replica(*slot, 0, false);
  }
  try_release(*slot);
}

// The name goes on without this bearer, on which copies have yet to report: a later write of it is another checkpoint.
void Planner::State::detach(Slot slot) {
  const HistoryId history = checkpoints[slot].history;
  const Version version = checkpoints[slot].version;
  checkpoints[slot].condemned = true;
  histories[history].slots.erase(version);
  if (checkpoints[slot].hint == RestoreOrder::kNone) return;
  const Slot heir = obtain(history, version);
  histories[history].order.rename(slot, heir);
  std::swap(checkpoints[heir].hint, checkpoints[slot].hint);
}

// As if it had never been written: hints for it wait again.
void Planner::State::unwrite(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  if (!c.condemned) history_of(c).unwritten += history_of(c).order.count(slot);
  c.exists = c.stored = c.reserving = false;
  bool lingering = c.readers > 0 || !c.moves.empty();
  for (const Replica& r : c.at) lingering |= r.state != ReplicaState::gone;
  if (lingering && !c.condemned) detach(slot);
  waits_progress(slot);
  refresh(slot);
  start_parked(slot);
}

// --- reading --------------------------------------------------------------------------------------------------------

void Planner::State::on_restore(const Event& e) {
  const Slot slot = lookup(e.history, e.version);
  if (slot == UINT32_MAX || !checkpoints[slot].exists || checkpoints[slot].reserving) {
    const bool consumed = histories[e.history].consumed.contains(e.version);
    const bool reserved = slot != UINT32_MAX && checkpoints[slot].reserving;
    return answer_plain(e.request, consumed ? Reason::consumed : Reason::unknown_version,
                        "version " + std::to_string(e.version) +
                            (consumed   ? " was restored already and no hint asked to keep it"
                             : reserved ? " is reserved and not committed yet"
                                        : " was never written"));
  }
  Checkpoint& c = checkpoints[slot];
  histories[e.history].reading = true;
  Request r;
  r.id = e.request;
  r.kind = e.kind;
  r.checkpoint = slot;
  r.since = now;
  r.keep = e.flag;
  r.found_on = fastest(c);
  ++c.readers;
  c.touched = ++sequence;
  r.hint_taken = remove_first_hint(slot);
  refresh(slot);
  Request& kept = requests.emplace(r.id, r).first->second;
  kept.distance = ready_successors(histories[e.history]);
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
  TierIndex from = kNoTier;
  for (TierIndex t = 0; t < tiers() && from == kNoTier; ++t) {
    if (r.excluded >> t & 1) continue;
    const Replica& rep = c.at[static_cast<std::size_t>(t)];
    const bool filling = rep.filler != kNoMove && !moves[static_cast<std::size_t>(rep.filler)].cancelled;
    if (complete(rep.state) || filling) from = t;
  }
  if (from == kNoTier && c.exists && !c.stored && !c.condemned && !r.cancelled) return;  // parked: its write waits for room
  if (from == kNoTier) {
    const bool keep_hint = r.hint_taken;
    const bool cancelled = r.cancelled;
    --c.readers;
    if (keep_hint && !c.condemned) {
      if (!c.exists) ++history_of(c).unwritten;
      history_of(c).order.prepend(slot);
      hints_changed(slot);
    }
    answer(r, cancelled ? Reason::cancelled : !c.exists      ? c.write_failed ? Reason::lost : Reason::unknown_version
              : c.condemned ? Reason::dropped
                            : Reason::lost,
           key_text(c) + (c.exists ? " could not be read from any tier" : " was not written after all"));
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
    if (r.checkpoint == slot && r.kind == EventKind::restore && r.move == kNoMove) parked.push_back(id);
  std::sort(parked.begin(), parked.end());
  for (RequestId id : parked) start_read(requests.at(id));
}

// Hinted successors, from the first on, that are complete on the fastest tier (hpdc23 sec. 5.3.5, metric 3).
std::uint32_t Planner::State::ready_successors(const History& h) const {
  std::uint32_t count = 0;
  for (auto p = h.order.head(); p < h.order.tail(); ++p) {
    const Slot slot = h.order.at(p);
    if (slot == RestoreOrder::kWithdrawn || !checkpoints[slot].exists) continue;
    const Checkpoint& c = checkpoints[slot];
    if (!c.stored || (c.bytes > 0 && !complete(c.at[0].state))) break;
    ++count;
  }
  return count;
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

void Planner::State::on_borrow(const Event& e) {
  const Slot slot = lookup(e.history, e.version);
  if (slot == UINT32_MAX || !checkpoints[slot].exists || !checkpoints[slot].stored) {
    const bool consumed = histories[e.history].consumed.contains(e.version);
    return answer_plain(e.request, consumed ? Reason::consumed : Reason::unknown_version,
                        "version " + std::to_string(e.version) + (consumed ? " was restored already" : " is not there"));
  }
  Checkpoint& c = checkpoints[slot];
  if (!memory(0)) return answer_plain(e.request, Reason::no_such_tier, "the fastest tier is not memory");
  if (c.bytes > 0 && footprint(0, c.bytes) > arenas[0].capacity())
    return answer_plain(e.request, Reason::too_large, std::to_string(c.bytes) + " bytes; " + describe_tiers());
  histories[e.history].reading = true;
  Request r;
  r.id = e.request;
  r.kind = e.kind;
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

void Planner::State::on_release(const Event& e) {
  const auto slot = give_back(e.request);
  if (!slot) return;
  if (checkpoints[*slot].bytes > 0) release_use(*slot, 0);
  finish_read(*slot, e.flag);
}

// --- hints, drops, waits ----------------------------------------------------------------------------------------------

void Planner::State::on_hint(const Event& e) {
  History& h = histories[e.history];
  dirty = true;
  if (e.kind == EventKind::hint && e.flag) {
    Event all;
    all.history = e.history;
    on_unhint(all);
  }
  auto hint = [&](Version v, bool front) {
    const Slot slot = obtain(e.history, v);
    if (!checkpoints[slot].exists) ++h.unwritten;
    if (front) h.order.prepend(slot);
    else h.order.append(slot);
    hints_changed(slot);
  };
  if (e.kind == EventKind::hint_front) hint(e.version, true);
  for (Version v : e.versions) hint(v, false);
}

void Planner::State::on_unhint(const Event& e) {
  History& h = histories[e.history];
  dirty = true;
  std::vector<Slot> named;
  if (e.versions.empty()) {
    for (auto p = h.order.head(); p < h.order.tail(); ++p)
      if (h.order.at(p) != RestoreOrder::kWithdrawn) named.push_back(h.order.at(p));
  } else {
    for (Version v : e.versions)
      if (const Slot s = lookup(e.history, v); s != UINT32_MAX) named.push_back(s);
  }
  for (Slot s : named)
    if (checkpoints[s].hint != RestoreOrder::kNone) withdraw_hint(s);
  for (Slot s : named) try_release(s);
}

void Planner::State::on_drop(const Event& e) {
  History& h = histories[e.history];
  std::vector<Slot> named;
  if (e.flag) {
    for (const auto& [version, slot] : h.slots) named.push_back(slot);
    std::sort(named.begin(), named.end());
    h.consumed.clear();
  } else if (const Slot s = lookup(e.history, e.version); s != UINT32_MAX) {
    named.push_back(s);
  }
  if (!e.flag) h.consumed.erase(e.version);
  for (Slot s : named) {
    Checkpoint& c = checkpoints[s];
    if (!c.exists) {  // only hinted
      while (c.hint != RestoreOrder::kNone) withdraw_hint(s);
      try_release(s);
      continue;
    }
    // Calls that wait for room for it have nothing in flight; those that copy end when their copies have.
    std::vector<RequestId> stopped;
    for (const auto& [id, r] : requests)
      if (r.checkpoint == s && r.waiting) stopped.push_back(id);
    std::sort(stopped.begin(), stopped.end());
    condemn(s, false);
    for (RequestId id : stopped) stop_waiting(id, Reason::dropped, key_text(c) + " was dropped meanwhile");
    try_release(s);
  }
}

void Planner::State::on_wait(const Event& e) {
  if (e.tier < 0 || e.tier >= tiers())
    return answer_plain(e.request, Reason::no_such_tier, "no such tier in this store");
  Wait wait;
  wait.id = e.request;
  wait.tier = e.tier;
  wait.history = e.history;
  auto add = [&](Slot s) {
    Checkpoint& c = checkpoints[s];
    if (!c.exists || c.reserving || c.bytes == 0 || (c.stored && lowest(c) >= e.tier)) return;
    wait.open.insert(s);
    c.flush_to = std::max(c.flush_to, e.tier);
    refresh(s);
  };
  if (e.flag) {
    for (const auto& [version, slot] : histories[e.history].slots) add(slot);
  } else {
    const Slot s = lookup(e.history, e.version);
    if (s == UINT32_MAX || !checkpoints[s].exists || checkpoints[s].reserving) {
      const bool consumed = histories[e.history].consumed.contains(e.version);
      return answer_plain(e.request, consumed ? Reason::consumed : Reason::unknown_version,
                          "version " + std::to_string(e.version) + (consumed ? " was restored already" : " was never written"));
    }
    add(s);
  }
  if (wait.open.empty()) return answer_plain(e.request, Reason::ok, {});
  waits.emplace(wait.id, std::move(wait));
}

// A checkpoint reached a lower tier, or is on its way out: who waited for that?
void Planner::State::waits_progress(Slot slot) {
  const Checkpoint& c = checkpoints[slot];
  for (auto it = waits.begin(); it != waits.end();) {
    Wait& w = it->second;
    if ((c.condemned || !c.exists || lowest(c) >= w.tier) && w.open.erase(slot) && w.open.empty()) {
      answer_plain(w.id, Reason::ok, {});
      histories[w.history].reading = true;  // whoever waits for flushes has finished writing
      it = waits.erase(it);
    } else {
      ++it;
    }
  }
}

void Planner::State::on_cancel(const Event& e) {
  if (const auto w = waits.find(e.request); w != waits.end()) {
    waits.erase(w);
    answer_plain(e.request, Reason::cancelled, "the wait was given up");
    return;
  }
  const auto it = requests.find(e.request);
  if (it == requests.end()) return;
  Request& r = it->second;
  if (stop_waiting(e.request, Reason::cancelled, "the call was given up while it waited for room; " + describe_tiers())) return;
  r.cancelled = true;
  if (r.move != kNoMove) {
    cancel_move(r.move);
  } else if (r.kind == EventKind::restore) {
    r.excluded = ~0u;
    start_read(r);
  }
}

// Ends a call that waits for room, which therefore has nothing in flight. False: it does not wait.
bool Planner::State::stop_waiting(RequestId id, Reason reason, const std::string& detail) {
  Request& r = requests.at(id);
  if (!r.waiting) return false;
  const Slot slot = r.checkpoint;
  const bool borrow = r.kind == EventKind::borrow;
  const bool hint_taken = r.hint_taken;
  Checkpoint& c = checkpoints[slot];
  answer(r, reason, key_text(c) + ": " + detail);
  if (!borrow) {
    unwrite(slot);
  } else {
    --c.readers;
    if (hint_taken && !c.condemned) {
      history_of(c).order.prepend(slot);
      hints_changed(slot);
    }
  }
  try_release(slot);
  return true;
}

}  // namespace ebb::policy
