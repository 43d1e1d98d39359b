#include "planner/waits.hpp"

#include <algorithm>
#include <utility>

namespace ebb::planner {

void Waits::on(HistoryId client, const event::Wait& e) {
  if (e.tier < 0 || e.tier >= context_.tiers()) return refuse_tier(e.request);
  const Slot s = table_.lookup(client, e.version);
  if (!table_.readable(s)) return calls_.refuse_missing(e.request, client, e.version);
  if (context_.lower(e.tier)) {  // though it is not one that goes there
    table_[s].filed[e.tier].waived = false;
    table_[s].filed[e.tier].asked = true;
  }
  add({.id = e.request, .history = client, .tier = e.tier, .open = {}}, {s});
}

void Waits::on(HistoryId client, const event::WaitAll& e) {
  if (e.tier < 0 || e.tier >= context_.tiers()) return refuse_tier(e.request);
  std::vector<Slot> all;
  for (const auto& [version, slot] : table_.history(client).slots) all.push_back(slot);
  add({.id = e.request, .history = client, .tier = e.tier, .open = {}}, all);
}

// How far down to `tier` the checkpoint goes. A copy that is given up on its way there may take until its commands end,
// and one that could not be read until its last reader has ended.
TierIndex Waits::goal(const Checkpoint& c, TierIndex tier) const {
  while (context_.lower(tier) && !good(c.at[tier]) && !table_.sent_to(c, tier)) --tier;
  return tier;
}

void Waits::refuse_tier(RequestId id) { context_.answer(id, Reason::no_such_tier, "no such tier in this store"); }

void Waits::add(Wait wait, const std::vector<Slot>& slots) {
  for (Slot s : slots) {
    Checkpoint& c = table_[s];
    const TierIndex to = goal(c, wait.tier);
    if (!c.exists() || c.write == WriteState::reserved || c.bytes == 0 || (c.stored() && table_.lowest(c) >= to))
      continue;
    wait.open.insert(s);
    c.flush_to = std::max(c.flush_to, to);
    // A flush that failed is tried again at once: the caller may have no other chance.
    if (!context_.machine.ephemeral) c.flush_retry = 0;
    for (MoveIndex i : c.moves)  // begun ahead of need
      if (Move& m = transfers_[i]; m.kind == MoveKind::flush && !(context_.lower(m.to) && m.to > to)) {
        m.forced = true;
        if (!context_.lower(m.to)) transfers_.undelay(m);  // what the file has refused is tried again
      }
    replicas_.refresh(s);
  }
  if (wait.open.empty()) return context_.answer(wait.id, Reason::ok);
  waits_.emplace(wait.id, std::move(wait));
}

// Answers the waits for a checkpoint that has reached a lower tier, no longer goes there, or is going to be deleted.
void Waits::progress(Slot slot) {
  const Checkpoint& c = table_[slot];
  for (auto it = waits_.begin(); it != waits_.end();) {
    Wait& w = it->second;
    if ((c.nameless() || !c.exists() || table_.lowest(c) >= goal(c, w.tier)) && w.open.erase(slot) && w.open.empty()) {
      context_.answer(w.id, Reason::ok);
      table_.history(w.history).reading = true;  // a program that waits for flushes has finished writing
      it = waits_.erase(it);
    } else {
      ++it;
    }
  }
}

TierIndex Waits::deepest() const {
  TierIndex tier = kNoTier;
  for (const auto& [id, wait] : waits_) tier = std::max(tier, wait.tier);
  return tier;
}

void Waits::fail(Slot slot, const std::string& why) {
  for (auto it = waits_.begin(); it != waits_.end();) {
    if (!it->second.open.contains(slot)) {
      ++it;
      continue;
    }
    context_.answer(it->first, Reason::lost, key_text(table_[slot]) + " is lost: " + why, table_.ref(slot));
    it = waits_.erase(it);
  }
}

void Waits::not_durable(Slot slot, TierIndex tier) {
  for (auto it = waits_.begin(); it != waits_.end();) {
    if (it->second.tier != tier || !it->second.open.contains(slot)) {
      ++it;
      continue;
    }
    context_.answer(it->first, Reason::lost, key_text(table_[slot]) + " is not durable", table_.ref(slot));
    it = waits_.erase(it);
  }
}

bool Waits::cancel(RequestId id) {
  const auto w = waits_.find(id);
  if (w == waits_.end()) return false;
  const std::unordered_set<Slot> open = std::move(w->second.open);
  waits_.erase(w);
  for (Slot s : open) {  // as far down as other waits still ask for
    TierIndex to = kNoTier;
    for (const auto& [other_id, other] : waits_)
      if (other.open.contains(s)) to = std::max(to, goal(table_[s], other.tier));
    table_[s].flush_to = to;
    replicas_.refresh(s);
  }
  context_.answer(id, Reason::cancelled, "the wait was given up");
  return true;
}

// On the way to `tier`, the one that the checkpoint has yet to come to: it passes the files in their order.
TierIndex Waits::next_tier(Slot slot, TierIndex tier) const {
  for (TierIndex t = context_.first_keeping; t < tier; ++t)
    if (!complete(table_[slot].at[t].state)) return t;
  return tier;
}

// A wait goes on while one of its checkpoints is not complete anywhere yet.
void Waits::refuse_stuck() {
  std::vector<RequestId> stuck;
  for (const auto& [id, w] : waits_) {
    bool retrying = context_.lower(w.tier) && durability_.silent(w.tier);  // whoever asked for that waits
    for (Slot s : w.open) retrying |= !table_[s].stored();
    if (!retrying) stuck.push_back(id);
  }
  for (RequestId id : stuck) {
    const Wait& w = waits_.at(id);
    const Slot s = *std::min_element(w.open.begin(), w.open.end(),
                                     [&](Slot a, Slot b) { return table_[a].version < table_[b].version; });
    const Checkpoint& c = table_[s];
    const bool failed = c.flush_failures > 0;
    const std::string there = context_.tier(next_tier(s, w.tier)).name;
    context_.answer(id, failed ? Reason::lost : Reason::no_space,
                    (failed ? "writing its " : "its ") + std::to_string(c.bytes) + " bytes " +
                        (failed ? "to " + there + " failed" : "have no room on " + there) +
                        ", and nothing under way will change that; " + space_.describe(),
                    table_.ref(s));
    waits_.erase(id);
  }
}

}  // namespace ebb::planner
