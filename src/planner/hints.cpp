// Hints, drops, waits and calls that are given up.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::hint(HistoryId client, Version version, bool front) {
  History& h = histories[client];
  const Slot slot = obtain(client, version);
  if (!checkpoints[slot].exists) ++h.unwritten;
  if (front)
    h.order.prepend(slot);
  else
    h.order.append(slot);
  hints_changed(slot);
}

void Planner::State::on(HistoryId client, const event::Hint& e) {
  dirty = true;
  if (e.replace) on(client, event::UnhintAll{});
  for (Version v : e.versions) hint(client, v, false);
}

void Planner::State::on(HistoryId client, const event::HintFront& e) {
  dirty = true;
  hint(client, e.version, true);
}

void Planner::State::on(HistoryId client, const event::StartPrefetch&) {
  dirty = true;
  histories[client].started = histories[client].reading = true;
}

void Planner::State::on(HistoryId client, const event::Order& e) { histories[client].reverse = e.reverse; }

void Planner::State::on(HistoryId client, const event::Unhint& e) {
  std::vector<Slot> named;
  for (Version v : e.versions)
    if (const Slot s = lookup(client, v); s != kNoSlot) named.push_back(s);
  unhint(named);
}

void Planner::State::on(HistoryId client, const event::UnhintAll&) {
  const RestoreOrder& order = histories[client].order;
  std::vector<Slot> named;
  for (auto p = order.head(); p < order.tail(); ++p)
    if (order.at(p) != RestoreOrder::kWithdrawn) named.push_back(order.at(p));
  unhint(named);
}

void Planner::State::unhint(const std::vector<Slot>& named) {
  dirty = true;
  for (Slot s : named)
    if (checkpoints[s].hint != RestoreOrder::kNone) withdraw_hint(s);
  for (Slot s : named) try_release(s);
}

void Planner::State::on(HistoryId client, const event::Drop& e) {
  const Slot s = lookup(client, e.version);
  histories[client].consumed.erase(e.version);
  histories[client].lost.erase(e.version);
  if (s != kNoSlot) drop(s);
}

void Planner::State::on(HistoryId client, const event::DropAll&) {
  History& h = histories[client];
  std::vector<Slot> named;
  for (const auto& [version, slot] : h.slots) named.push_back(slot);
  std::sort(named.begin(), named.end());
  h.consumed.clear();
  h.lost.clear();
  for (Slot s : named) drop(s);
}

void Planner::State::drop(Slot s) {
  Checkpoint& c = checkpoints[s];
  if (!c.exists) {  // only hinted
    while (c.hint != RestoreOrder::kNone) withdraw_hint(s);
    try_release(s);
    return;
  }
  // Calls that wait for room for it have nothing in flight; those that copy end when their copies have.
  std::vector<RequestId> stopped;
  for (const auto& [id, r] : requests)
    if (r.checkpoint == s && r.waiting) stopped.push_back(id);
  std::sort(stopped.begin(), stopped.end());
  condemn(s, false);
  for (RequestId id : stopped)  // a borrow may have ended with the write that it waited for
    if (requests.contains(id)) stop_waiting(id, Reason::dropped, key_text(c) + " was dropped meanwhile");
  try_release(s);
}

// Everything but a hint that named it before is as it was: the plans stand.
void Planner::State::on(HistoryId client, const event::Recovered& e) {
  if (memory(static_cast<TierIndex>(tiers() - 1)))
    throw std::logic_error("what is adopted lies in a file; there is none");
  if (const Slot found = lookup(client, e.version); found != UINT32_MAX && checkpoints[found].exists)
    throw std::logic_error("a version that exists was adopted");
  History& h = histories[client];
  const Slot slot = obtain(client, e.version);
  Checkpoint& c = checkpoints[slot];
  const bool hinted = c.hint != RestoreOrder::kNone;
  if (hinted) h.unwritten -= h.order.count(slot);
  c.exists = true;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = ++sequence;
  stored(c);
  c.durable = Checkpoint::Durable::yes;
  c.adopted = true;
  c.intact = c.bytes == 0;
  lie_in_file(slot);
  count_kept(slot);
  if (hinted) hints_changed(slot);
}

void Planner::State::on(HistoryId client, const event::Forget&) {
  const History& h = histories[client];
  if (!h.slots.empty() || h.bearers > 0 || h.order.size() > 0 || h.consumed.ranges() > 0 || !h.lost.empty())
    throw std::logic_error("a history was forgotten that still has something");
  histories[client] = History();
}

void Planner::State::on(HistoryId client, const event::Wait& e) {
  if (e.tier < 0 || e.tier >= tiers()) return refuse_tier(e.request);
  const Slot s = lookup(client, e.version);
  if (s == kNoSlot || !checkpoints[s].exists || checkpoints[s].reserving) {
    return refuse_missing(e.request, client, e.version);
  }
  wait_for({.id = e.request, .history = client, .tier = e.tier, .open = {}}, {s});
}

void Planner::State::on(HistoryId client, const event::WaitAll& e) {
  if (e.tier < 0 || e.tier >= tiers()) return refuse_tier(e.request);
  std::vector<Slot> all;
  for (const auto& [version, slot] : histories[client].slots) all.push_back(slot);
  wait_for({.id = e.request, .history = client, .tier = e.tier, .open = {}}, all);
}

// Of a version that is not there.
void Planner::State::refuse_missing(RequestId id, HistoryId client, Version version) {
  const History& h = histories[client];
  const Slot slot = lookup(client, version);
  const std::string name = "version " + std::to_string(version);
  if (const auto lost = h.lost.find(version); lost != h.lost.end())
    return answer_plain(id, Reason::lost, name + " is lost: " + lost->second);
  if (h.consumed.contains(version))
    return answer_plain(id, Reason::consumed, name + " was restored already and no hint asked to keep it");
  const bool reserved = slot != kNoSlot && checkpoints[slot].reserving;
  answer_plain(id, Reason::unknown_version,
               name + (reserved ? " is reserved and not committed yet" : " was never written"));
}

// Waits for a checkpoint whose only copy is lost.
void Planner::State::fail_waits(Slot slot, const std::string& why) {
  for (auto it = waits.begin(); it != waits.end();) {
    if (!it->second.open.contains(slot)) {
      ++it;
      continue;
    }
    Answer a;
    a.request = it->first;
    a.reason = Reason::lost;
    a.checkpoint = ref(slot);
    a.detail = key_text(checkpoints[slot]) + " is lost: " + why;
    it = waits.erase(it);
    out->answers.push_back(std::move(a));
  }
}

void Planner::State::refuse_tier(RequestId id) { answer_plain(id, Reason::no_such_tier, "no such tier in this store"); }

void Planner::State::wait_for(Wait wait, const std::vector<Slot>& slots) {
  for (Slot s : slots) {
    Checkpoint& c = checkpoints[s];
    if (!c.exists || c.reserving || c.bytes == 0 || (c.stored && lowest(c) >= wait.tier)) continue;
    wait.open.insert(s);
    c.flush_to = std::max(c.flush_to, wait.tier);
    if (!machine.ephemeral) c.flush_retry = 0;  // what failed is tried at once: its caller may have no other chance
    for (MoveIndex i : c.moves)                 // begun ahead of need
      if (Move& m = moves[static_cast<std::size_t>(i)]; m.kind == MoveKind::flush) m.forced = true;
    refresh(s);
  }
  if (wait.open.empty()) return answer_plain(wait.id, Reason::ok, {});
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

void Planner::State::on(HistoryId, const event::Cancel& e) {
  if (const auto w = waits.find(e.request); w != waits.end()) {
    const std::unordered_set<Slot> open = std::move(w->second.open);
    waits.erase(w);
    for (Slot s : open) {  // as far down as other waits still ask for
      TierIndex to = kNoTier;
      for (const auto& [id, other] : waits)
        if (other.open.contains(s)) to = std::max(to, other.tier);
      checkpoints[s].flush_to = to;
      refresh(s);
    }
    answer_plain(e.request, Reason::cancelled, "the wait was given up");
    return;
  }
  const auto it = requests.find(e.request);
  if (it == requests.end()) return;
  Request& r = it->second;
  if (stop_waiting(e.request, Reason::cancelled, "the call was given up while it waited for room; " + describe_tiers()))
    return;
  r.cancelled = true;
  const Slot slot = r.checkpoint;
  if (r.kind == Request::Kind::checkpoint && !checkpoints[slot].condemned) {  // copies of it have yet to report
    History& h = history_of(checkpoints[slot]);
    h.unwritten += h.order.count(slot);
    detach(slot);
    checkpoints[slot].exists = false;
    count_kept(slot);
  }
  if (r.move != kNoMove) {
    cancel_move(r.move);
  } else if (r.kind == Request::Kind::restore) {
    r.excluded = ~0u;
    start_read(r);
  }
}

// Ends a call that waits for room, which therefore has nothing in flight. False: it does not wait.
bool Planner::State::stop_waiting(RequestId id, Reason reason, const std::string& detail) {
  Request& r = requests.at(id);
  if (!r.waiting) return false;
  const Slot slot = r.checkpoint;
  const bool borrow = r.kind == Request::Kind::borrow;
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
