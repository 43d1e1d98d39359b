// Hints, drops, waits and calls that are given up.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::on(HistoryId client, const event::Hint& e) {
  context.dirty = true;
  if (e.replace) on(client, event::UnhintAll{});
  for (Version v : e.versions) replicas.hint(client, v, false);
}

void Planner::State::on(HistoryId client, const event::HintFront& e) {
  context.dirty = true;
  replicas.hint(client, e.version, true);
}

void Planner::State::on(HistoryId client, const event::StartPrefetch&) {
  context.dirty = true;
  table.history(client).started = table.history(client).reading = true;
}

void Planner::State::on(HistoryId client, const event::Order& e) { table.history(client).reverse = e.reverse; }

void Planner::State::on(HistoryId client, const event::Unhint& e) {
  std::vector<Slot> named;
  for (Version v : e.versions)
    if (const Slot s = table.lookup(client, v); s != kNoSlot) named.push_back(s);
  unhint(named);
}

void Planner::State::on(HistoryId client, const event::UnhintAll&) {
  const RestoreOrder& order = table.history(client).order;
  std::vector<Slot> named;
  for (auto p = order.head(); p < order.tail(); ++p)
    if (order.at(p) != RestoreOrder::kWithdrawn) named.push_back(order.at(p));
  unhint(named);
}

void Planner::State::unhint(const std::vector<Slot>& named) {
  context.dirty = true;
  for (Slot s : named)
    if (table[s].hint != RestoreOrder::kNone) replicas.withdraw_hint(s);
  for (Slot s : named) replicas.try_release(s);
}

void Planner::State::on(HistoryId client, const event::Drop& e) {
  const Slot s = table.lookup(client, e.version);
  table.history(client).consumed.erase(e.version);
  table.history(client).lost.erase(e.version);
  if (s != kNoSlot) drop(s);
}

void Planner::State::on(HistoryId client, const event::DropAll&) {
  History& h = table.history(client);
  std::vector<Slot> named;
  for (const auto& [version, slot] : h.slots) named.push_back(slot);
  std::sort(named.begin(), named.end());
  h.consumed.clear();
  h.lost.clear();
  for (Slot s : named) drop(s);
}

void Planner::State::drop(Slot s) {
  Checkpoint& c = table[s];
  if (!c.exists) {  // only hinted
    while (c.hint != RestoreOrder::kNone) replicas.withdraw_hint(s);
    replicas.try_release(s);
    return;
  }
  // Calls that wait for room for it have nothing in flight; those that copy end
  // when their copies have.
  const std::vector<RequestId> stopped = calls.of(s, [](const Request& r) { return r.waiting; });
  condemn(s, false);
  for (RequestId id : stopped)  // a borrow may have ended with the write that it waited for
    if (calls.find(id) != nullptr) stop_waiting(id, Reason::dropped, key_text(c) + " was dropped meanwhile");
  replicas.try_release(s);
}

// Everything but a hint that named it before is as it was: the plans stand.
void Planner::State::on(HistoryId client, const event::Recovered& e) {
  if (context.memory(context.last_tier())) throw std::logic_error("what is adopted lies in a file; there is none");
  if (const Slot found = table.lookup(client, e.version); found != kNoSlot && table[found].exists)
    throw std::logic_error("a version that exists was adopted");
  History& h = table.history(client);
  const Slot slot = table.obtain(client, e.version);
  Checkpoint& c = table[slot];
  const bool hinted = c.hint != RestoreOrder::kNone;
  if (hinted) h.unwritten -= h.order.count(slot);
  c.exists = true;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = table.next_sequence();
  table.set_stored(c);
  c.durable = Checkpoint::Durable::yes;
  c.adopted = true;
  c.intact = c.bytes == 0;
  replicas.complete_in_file(slot);
  durability.count(slot);
  if (hinted) replicas.hints_changed(slot);
}

void Planner::State::on(HistoryId client, const event::Forget&) { table.forget(client); }

void Planner::State::on(HistoryId client, const event::Wait& e) {
  if (e.tier < 0 || e.tier >= context.tiers()) return refuse_tier(e.request);
  const Slot s = table.lookup(client, e.version);
  if (s == kNoSlot || !table[s].exists || table[s].reserving) {
    return calls.refuse_missing(e.request, client, e.version);
  }
  waits.add({.id = e.request, .history = client, .tier = e.tier, .open = {}}, {s});
}

void Planner::State::on(HistoryId client, const event::WaitAll& e) {
  if (e.tier < 0 || e.tier >= context.tiers()) return refuse_tier(e.request);
  std::vector<Slot> all;
  for (const auto& [version, slot] : table.history(client).slots) all.push_back(slot);
  waits.add({.id = e.request, .history = client, .tier = e.tier, .open = {}}, all);
}

void Planner::State::refuse_tier(RequestId id) {
  context.answer(id, Reason::no_such_tier, "no such tier in this store");
}

void Planner::State::on(HistoryId, const event::Cancel& e) {
  if (waits.cancel(e.request)) return;
  Request* const found = calls.find(e.request);
  if (found == nullptr) return;
  Request& r = *found;
  if (stop_waiting(e.request, Reason::cancelled, "the call was given up while it waited for room; " + space.describe()))
    return;
  r.cancelled = true;
  const Slot slot = r.checkpoint;
  if (r.kind == Request::Kind::checkpoint && !table[slot].condemned) {  // copies of it have yet to report
    History& h = table.history_of(table[slot]);
    h.unwritten += h.order.count(slot);
    table.detach(slot);
    table[slot].exists = false;
    durability.count(slot);
  }
  if (r.move != kNoMove) {
    cancel_move(r.move);
  } else if (r.kind == Request::Kind::restore) {
    r.excluded = ~0u;
    start_read(r);
  }
}

// Ends a call that waits for room, which therefore has nothing in flight.
// False: it does not wait.
bool Planner::State::stop_waiting(RequestId id, Reason reason, const std::string& detail) {
  Request& r = calls.at(id);
  if (!r.waiting) return false;
  const Slot slot = r.checkpoint;
  const bool borrow = r.kind == Request::Kind::borrow;
  const bool hint_taken = r.hint_taken;
  Checkpoint& c = table[slot];
  calls.answer(r, reason, key_text(c) + ": " + detail);
  if (!borrow) {
    unwrite(slot);
  } else {
    --c.readers;
    if (hint_taken && !c.condemned) {
      table.history_of(c).order.prepend(slot);
      replicas.hints_changed(slot);
    }
  }
  replicas.try_release(slot);
  return true;
}

}  // namespace ebb::policy
