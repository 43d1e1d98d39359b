#include "planner/checkpoint_table.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "planner/eviction.hpp"

namespace ebb::planner {

CheckpointTable::CheckpointTable(Context& context, const TierSpace& space) : context_(context), space_(space) {
  histories_.resize(1);
}

void CheckpointTable::admit(HistoryId client) {
  if (client >= histories_.size()) histories_.resize(client + 1);
}

bool CheckpointTable::idle(HistoryId client) const {
  if (client >= histories_.size()) return true;
  const History& h = histories_[client];
  return h.slots.empty() && h.live_checkpoints == 0 && h.order.size() == 0 && h.consumed.ranges() == 0 &&
         h.lost.empty();
}

void CheckpointTable::forget(HistoryId client) {
  if (!idle(client)) throw std::logic_error("a history was forgotten that still has something");
  histories_[client] = History();
}

Slot CheckpointTable::lookup(HistoryId history, Version version) const {
  if (history >= histories_.size()) return kNoSlot;
  const auto it = histories_[history].slots.find(version);
  return it == histories_[history].slots.end() ? kNoSlot : it->second;
}

Slot CheckpointTable::obtain(HistoryId history, Version version) {
  const auto [it, added] = histories_[history].slots.try_emplace(version, kNoSlot);
  if (!added) return it->second;
  Slot slot;
  if (free_slots_.empty()) {
    slot = static_cast<Slot>(checkpoints_.size());
    checkpoints_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Checkpoint& c = checkpoints_[slot];
  const std::uint32_t generation = c.generation + 1;
  std::vector<MoveIndex> memory = std::move(c.moves);
  c = Checkpoint{};
  c.moves = std::move(memory);
  c.generation = generation;
  c.history = history;
  c.version = version;
  c.become(NameState::named);
  ++histories_[history].live_checkpoints;
  it->second = slot;
  return slot;
}

void CheckpointTable::unname(Slot slot) {
  const Checkpoint& c = checkpoints_[slot];
  History& h = history_of(c);
  if (const auto it = h.slots.find(c.version); it != h.slots.end() && it->second == slot) h.slots.erase(it);
}

// Frees the name of a checkpoint that copies have yet to report on: the next write of the version is another
// checkpoint, which takes its place in the restore order.
void CheckpointTable::detach(Slot slot) {
  Checkpoint& c = checkpoints_[slot];
  c.become(NameState::dropped);
  history_of(c).slots.erase(c.version);
  if (c.hint == RestoreOrder::kNone) return;
  const Slot heir = obtain(c.history, c.version);
  history_of(c).order.rename(slot, heir);
  std::swap(checkpoints_[heir].hint, c.hint);
}

// Frees the slot of a checkpoint of which nothing is left.
void CheckpointTable::release(Slot slot) {
  Checkpoint& c = checkpoints_[slot];
  --history_of(c).live_checkpoints;
  c.become(NameState::free);
  if (c.write != WriteState::unwritten) c.become(WriteState::unwritten);
  free_slots_.push_back(slot);
}

TierIndex CheckpointTable::fastest(const Checkpoint& c) const {
  if (c.bytes == 0 && c.stored()) return 0;
  for (TierIndex t = 0; t < context_.tiers(); ++t)
    if (good(c.at[t])) return t;
  return kNoTier;
}

TierIndex CheckpointTable::lowest(const Checkpoint& c) const {
  for (TierIndex t = context_.tiers(); t-- > 0;)
    if (good(c.at[t])) return t;
  return kNoTier;
}

// Whether a complete copy stays below: in a file, or in memory that was not recalled.
bool CheckpointTable::safe_below(const Checkpoint& c, TierIndex t) const {
  for (TierIndex to = context_.below(t); to != kNoTier; to = context_.below(to))
    if (good(c.at[to]) && !space_.beyond(c, to)) return true;
  return false;
}

bool CheckpointTable::sent_to(const Checkpoint& c, TierIndex t) const {
  if (!context_.lower(t)) return true;
  const std::uint64_t every = context_.tier(t).every;
  if (every == kNothingComes || c.filed[t].waived) return false;
  if (every <= 1 || c.filed[t].asked) return true;
  return every != kOnRequest && c.version % static_cast<Version>(every) == 0;
}

bool CheckpointTable::belongs(const Checkpoint& c, TierIndex t) const {
  if (c.at[t].state != ReplicaState::gone) return true;
  if (!context_.lower(t)) return lowest(c) <= t;
  return c.bytes > 0 && sent_to(c, t);
}

bool CheckpointTable::goes_below(const Checkpoint& c, TierIndex t) const {
  if (!context_.keeps(t)) return t < context_.last_tier();
  for (TierIndex to = context_.below(t); to != kNoTier; to = context_.below(to))
    if (belongs(c, to)) return true;
  return false;
}

TierIndex CheckpointTable::next_below(const Checkpoint& c, TierIndex t) const {
  for (TierIndex to = std::max<TierIndex>(static_cast<TierIndex>(t + 1), context_.first_keeping); to < context_.tiers();
       ++to)
    if (belongs(c, to)) return c.at[to].state == ReplicaState::gone ? to : kNoTier;
  return kNoTier;
}

bool CheckpointTable::awaited_below(const Checkpoint& c, TierIndex t) const {
  for (TierIndex to = context_.below(t); to != kNoTier; to = context_.below(to))
    if (belongs(c, to) && !durable(c.filed[to].state)) return true;
  return false;
}

bool CheckpointTable::kept_beside(const Checkpoint& c, TierIndex t) const {
  for (TierIndex other = context_.first_keeping; other < context_.tiers(); ++other)
    if (other != t && good(c.at[other])) return true;
  return false;
}

void CheckpointTable::set_state(Slot slot, TierIndex tier, ReplicaState to) {
  Replica& r = checkpoints_[slot].at[tier];
  r.state = transition(r.state, to);
}

void CheckpointTable::set_stored(Checkpoint& c) {
  c.become(WriteState::stored);
  c.hinted = false;
  c.stored_at = next_sequence();
}

std::int64_t CheckpointTable::distance(const Checkpoint& c) const {
  if (c.hint == RestoreOrder::kNone) return FragmentScore::kUnhinted;
  return c.hint - history_of(c).order.head();
}

bool CheckpointTable::remove_first_hint(Slot slot) {
  Checkpoint& c = checkpoints_[slot];
  History& h = history_of(c);
  const RestoreOrder::Position was = c.hint;
  if (!h.order.remove_first(slot)) return false;
  c.hint = h.order.first(slot);
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    Cursor& served = h.served[t];
    if (was < served.next && c.stored()) served.ahead -= space_.footprint(0, c.bytes);
  }
  if (was < h.ready.next && c.exists()) --h.ready.count;
  recount(slot);  // a further hint of it may be where it was passed over
  return true;
}

void CheckpointTable::recount(Slot slot) {
  const Checkpoint& c = checkpoints_[slot];
  History& h = history_of(c);
  for (Cursor& served : h.served)
    if (c.hint < served.next) served = Cursor{};
  if (c.hint < h.ready.next) h.ready = Successors{};
}

// Hinted successors, from the first on, that are complete on the fastest tier (hpdc23 sec. 5.3.5, metric 3).
std::uint32_t CheckpointTable::ready_successors(History& h) const {
  Successors& ready = h.ready;
  ready.next = std::max(ready.next, h.order.head());
  for (; ready.next < h.order.tail(); ++ready.next) {
    const Slot slot = h.order.at(ready.next);
    if (slot == RestoreOrder::kWithdrawn || !checkpoints_[slot].exists()) continue;
    const Checkpoint& c = checkpoints_[slot];
    if (!c.stored() || (c.bytes > 0 && !good(c.at[0]))) break;
    ++ready.count;
  }
  return ready.count;
}

}  // namespace ebb::planner
