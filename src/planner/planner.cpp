#include "planner/planner.hpp"

#include <stdexcept>
#include <utility>

#include "planner/state.hpp"

namespace ebb::policy {

Planner::Planner(const Machine& machine) : state_(std::make_unique<State>(machine)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

void Planner::on(const Event& event, Output& out) { state_->on(event, out); }
const Machine& Planner::machine() const { return state_->machine; }
const Counters& Planner::counters() const { return state_->counters; }
std::size_t Planner::pending() const { return state_->live_moves; }
void Planner::check() const { state_->check(); }

TierUse Planner::use(TierIndex tier) const {
  const auto t = static_cast<std::size_t>(tier);
  TierUse use;
  use.capacity = state_->maps.at(t).lent();
  const bool memory = state_->memory(tier);
  use.used = memory ? state_->maps[t].used() : state_->file_used[t];
  use.largest_gap = memory ? state_->maps[t].largest_gap() : state_->free_bytes(tier);
  use.replicas = state_->replicas[t];
  use.evictions = state_->evictions[t];
  return use;
}

LinkUse Planner::use(int link) const {
  const Link& l = state_->links.at(static_cast<std::size_t>(link));
  LinkUse use = l.use;
  use.busy = l.estimate.busy();
  use.estimate_bytes_per_s = l.estimate.bytes_per_s();
  return use;
}

std::optional<CheckpointRef> Planner::find(HistoryId history, Version version) const {
  const Slot slot = state_->lookup(history, version);
  if (slot == UINT32_MAX || !state_->checkpoints[slot].exists) return std::nullopt;
  return state_->ref(slot);
}

bool Planner::idle(HistoryId history) const {
  if (history >= state_->histories.size()) return true;
  const History& h = state_->histories[history];
  return h.slots.empty() && h.bearers == 0 && h.order.size() == 0 && h.consumed.ranges() == 0 && h.lost.empty();
}

Bytes Planner::bytes_of(CheckpointRef c) const { return state_->checkpoints.at(c.slot).bytes; }
TierIndex Planner::fastest_complete(CheckpointRef c) const { return state_->fastest(state_->checkpoints.at(c.slot)); }
TierIndex Planner::lowest_complete(CheckpointRef c) const { return state_->lowest(state_->checkpoints.at(c.slot)); }

std::uint32_t Planner::prefetch_distance(HistoryId history) const {
  if (history >= state_->histories.size()) return 0;
  return state_->ready_successors(state_->histories[history]);
}

const char* name_of(Reason reason) {
  switch (reason) {
    case Reason::ok: return "ok";
    case Reason::version_exists: return "version_exists";
    case Reason::unknown_version: return "unknown_version";
    case Reason::consumed: return "consumed";
    case Reason::too_large: return "too_large";
    case Reason::no_space: return "no_space";
    case Reason::lost: return "lost";
    case Reason::dropped: return "dropped";
    case Reason::cancelled: return "cancelled";
    case Reason::no_such_tier: return "no_such_tier";
  }
  return "?";
}

Planner::State::State(const Machine& m) : machine(m), chooser(m.eviction) {
  if (machine.tiers.empty() || machine.tiers.size() > kMaxTiers)
    throw std::logic_error("a machine has 1 to " + std::to_string(kMaxTiers) + " tiers");
  if (machine.nodes.empty()) connect(machine);
  for (const TierSpec& t : machine.tiers) {
    if (t.capacity == 0 || t.granule == 0) throw std::logic_error("tier " + t.name + " has no capacity or no granule");
    maps.emplace_back(t.granule).lend(0, t.capacity);
    leases.push_back({{}});
  }
  file_used.resize(machine.tiers.size());
  replicas.resize(machine.tiers.size());
  evictions.resize(machine.tiers.size());
  spare_bytes.resize(machine.tiers.size());
  spares.resize(machine.tiers.size());
  for (const LinkSpec& l : machine.links) {
    if (l.chunk == 0 || l.depth < 1) throw std::logic_error("link " + l.name + " has no chunk or no depth");
    links.emplace_back(l);
  }
  for (Link& link : links)
    for (const Link& other : links)
      if (std::ranges::any_of(link.spec.resources, [&](int r) {
            return machine.resources.at(static_cast<std::size_t>(r)).urgent_first &&
                   std::ranges::find(other.spec.resources, r) != other.spec.resources.end();
          }))
        link.rivals.push_back(static_cast<int>(&other - links.data()));
  const int n = tiers();
  const auto node = [&](int i) { return i == n ? kApplication : machine.tiers[static_cast<std::size_t>(i)].node; };
  routes.resize(static_cast<std::size_t>((n + 1) * (n + 1)));
  for (int a = 0; a <= n; ++a)
    for (int b = 0; b <= n; ++b)
      if (a != b) routes[static_cast<std::size_t>(a * (n + 1) + b)] = route(machine, node(a), node(b));
  for (const NodeSpec& spec : machine.nodes) {
    auto& free = free_slots_of.emplace_back();
    for (auto& ring : free)
      for (int i = spec.staging; i-- > 0;) ring.push_back(i);
  }
  histories.resize(1);
}

void Planner::State::on(const Event& e, Output& output) {
  if (e.now < now) throw std::logic_error("event times go back");
  now = e.now;
  out = &output;
  const Time before = std::exchange(wakeup, kNever);
  ++counters.events;
  file_full = nothing_comes = false;
  if (e.client >= histories.size()) histories.resize(e.client + 1);
  std::visit([&](const auto& what) { on(e.client, what); }, e.what);
  if (!dirty) wakeup = before;  // nothing is planned anew, and what waits for its time still does
  for (int round = 0; dirty && round < 64; ++round) {
    dirty = false;
    leave_beyond();
    if (!waiting.empty()) serve_waiting();
    schedule_flushes();
    rescue_upwards();
    schedule_prefetches();
    if (std::exchange(nothing_comes, false)) make_room_in_file();
  }
  issue();
  if (!waiting.empty() || !waits.empty()) refuse_stuck();
  leave_beyond();
  say_returned();
  ask_to_commit();
  if (dirty) wakeup = now;  // more rounds than one event may take: the next goes on
  output.wakeup = wakeup;
  out = nullptr;
}

void Planner::State::on(HistoryId, const event::Tick&) { dirty = true; }

// --- the table of checkpoints
// -----------------------------------------------------------------------------------------

Slot Planner::State::lookup(HistoryId history, Version version) const {
  if (history >= histories.size()) return UINT32_MAX;
  const auto it = histories[history].slots.find(version);
  return it == histories[history].slots.end() ? UINT32_MAX : it->second;
}

Slot Planner::State::obtain(HistoryId history, Version version) {
  const auto [it, added] = histories[history].slots.try_emplace(version, UINT32_MAX);
  if (!added) return it->second;
  Slot slot;
  if (free_slots.empty()) {
    slot = static_cast<Slot>(checkpoints.size());
    checkpoints.emplace_back();
  } else {
    slot = free_slots.back();
    free_slots.pop_back();
  }
  Checkpoint& c = checkpoints[slot];
  const std::uint32_t generation = c.generation + 1;
  std::vector<MoveIndex> memory = std::move(c.moves);
  c = Checkpoint{};
  c.moves = std::move(memory);
  c.generation = generation;
  c.history = history;
  c.version = version;
  c.live = true;
  ++histories[history].bearers;
  it->second = slot;
  return slot;
}

TierIndex Planner::State::fastest(const Checkpoint& c) const {
  if (c.bytes == 0 && c.stored) return 0;
  for (TierIndex t = 0; t < tiers(); ++t)
    if (good(c.at[static_cast<std::size_t>(t)])) return t;
  return kNoTier;
}

TierIndex Planner::State::lowest(const Checkpoint& c) const {
  for (TierIndex t = tiers(); t-- > 0;)
    if (good(c.at[static_cast<std::size_t>(t)])) return t;
  return kNoTier;
}

// A complete copy is below that stays: in a file, or in memory that was not recalled.
bool Planner::State::safe_below(const Checkpoint& c, TierIndex t) const {
  for (TierIndex to = below(t); to != kNoTier; to = below(to))
    if (good(c.at[static_cast<std::size_t>(to)]) && !beyond(c, to)) return true;
  return false;
}

std::int64_t Planner::State::distance(const Checkpoint& c) const {
  if (c.hint == RestoreOrder::kNone) return FragmentScore::kUnhinted;
  return c.hint - histories[c.history].order.head();
}

void Planner::State::set_state(Slot slot, TierIndex tier, ReplicaState to) {
  Replica& r = checkpoints[slot].at[static_cast<std::size_t>(tier)];
  r.state = transition(r.state, to);
}

// Brings every complete replica's state to what its facts say, and the checkpoint into the flush list it belongs to.
void Planner::State::refresh(Slot slot) {
  dirty = true;
  Checkpoint& c = checkpoints[slot];
  const TierIndex bottom = lowest(c);
  for (TierIndex t = 0; t < tiers(); ++t) {
    Replica& r = c.at[static_cast<std::size_t>(t)];
    if (!good(r)) continue;
    const bool safe = safe_below(c, t) || t == tiers() - 1;
    ReplicaState to = safe ? ReplicaState::flushed : ReplicaState::written;
    if (c.consumed || (c.condemned && r.state == ReplicaState::consumed))
      to = ReplicaState::consumed;
    else if (r.wanted)
      to = ReplicaState::read_complete;
    else if (r.state == ReplicaState::consumed) {  // hinted again: it passes through `wanted`
      set_state(slot, t, ReplicaState::read_complete);
    }
    if (r.state != to) set_state(slot, t, to);
  }
  count_spare(slot);
  count_kept(slot);
  bool going_down = false;
  for (MoveIndex m : c.moves) going_down |= moves[static_cast<std::size_t>(m)].kind == MoveKind::flush;
  const bool candidate =
      c.exists && c.stored && !c.condemned && bottom != kNoTier && bottom < tiers() - 1 && !going_down;
  const TierIndex list = candidate ? bottom : kNoTier;
  const bool force = candidate && (c.flush_to > bottom || beyond(c, bottom));
  const bool in_turn = retains() || c.hint == RestoreOrder::kNone;
  const FlushKey key{in_turn ? INT64_MIN : -c.hint, retains() ? c.stored_at : c.written, slot};
  if (list == c.listed_on && force == c.listed_forced && (list == kNoTier || key == c.key)) return;
  if (c.listed_on != kNoTier) {
    flushable[static_cast<std::size_t>(c.listed_on)].erase(c.key);
    if (c.listed_forced) forced[static_cast<std::size_t>(c.listed_on)].erase(c.key);
  }
  c.listed_on = list;
  c.listed_forced = force;
  c.key = key;
  if (list != kNoTier) {
    flushable[static_cast<std::size_t>(list)].insert(key);
    if (force) forced[static_cast<std::size_t>(list)].insert(key);
  }
}

// A replica is spare when a complete copy stays without it: below, or (exclusive capacity) wanted above.
void Planner::State::count_spare(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  bool wanted_above = false;
  std::array<Spare, kMaxTiers> spare{};
  for (TierIndex t = 0; t < tiers(); ++t) {
    const Replica& r = c.at[static_cast<std::size_t>(t)];
    if (!good(r)) continue;
    if (wanted_above) spare[static_cast<std::size_t>(t)] = Spare::wanted_above;
    wanted_above |= machine.ephemeral && r.wanted;
  }
  Spare below = Spare::no;  // a copy in memory that was recalled makes nothing spare
  for (TierIndex t = tiers(); t-- > 0;) {
    const auto i = static_cast<std::size_t>(t);
    Replica& r = c.at[i];
    if (good(r)) {
      if (spare[i] == Spare::no) spare[i] = below;
      if (!beyond(c, t)) below = memory(t) ? Spare::memory_below : Spare::file_below;
    }
    SpareKey key{INT64_MIN, 0, slot};
    if (spare[i] != Spare::wanted_above) key = {c.hint == RestoreOrder::kNone ? INT64_MIN : -c.hint, c.touched, slot};
    if (r.spare == spare[i] && (r.spare == Spare::no || key == c.spare_key[i])) continue;
    const Bytes size = footprint(t, c.bytes);
    if (r.spare != Spare::no) {
      spare_bytes[i] -= size;
      spares[i].erase(c.spare_key[i]);
    }
    if (spare[i] != Spare::no) {
      spare_bytes[i] += size;
      spares[i].insert(key);
      c.spare_key[i] = key;
    }
    r.spare = spare[i];
  }
}

void Planner::State::remove_replica(Slot slot, TierIndex tier, bool evicted) {
  const auto t = static_cast<std::size_t>(tier);
  Checkpoint& c = checkpoints[slot];
  Replica& r = c.at[t];
  if (r.uses != 0 || r.filler != kNoMove) throw std::logic_error("a replica in use was removed");
  const Bytes size = footprint(tier, c.bytes);
  if (memory(tier))
    maps[t].erase(r.offset);
  else
    file_used[t] -= size;
  --replicas[t];
  if (evicted) ++evictions[t];
  out->freed.push_back({tier, ref(slot), memory(tier) ? r.offset : 0, size, r.failed});
  if (r.wanted) {
    r.wanted = false;
    if (r.state == ReplicaState::read_complete) refresh(slot);
  }
  if (r.state == ReplicaState::read_complete) set_state(slot, tier, ReplicaState::written);  // it could not be read
  set_state(slot, tier, ReplicaState::gone);
  count_spare(slot);
  r = Replica{};
  if (tier == tiers() - 1) {
    c.durable = Checkpoint::Durable::pending;
    c.adopted = c.intact = false;
  }
  if (const TierIndex still = fastest(c); still == kNoTier || still > tier) recount(slot);
  refresh(slot);
}

void Planner::State::release_use(Slot slot, TierIndex tier) {
  Replica& r = checkpoints[slot].at[static_cast<std::size_t>(tier)];
  if (r.uses == 0) throw std::logic_error("a use was released twice");
  --r.uses;
  dirty = true;
  // The move that filled it has failed, and this was the last that still read what had arrived.
  if (r.uses == 0 && r.filler == kNoMove && (r.state == ReplicaState::reading || r.state == ReplicaState::writing))
    remove_replica(slot, tier, false);
}

// The checkpoint leaves the table of names; its bytes follow when nobody uses them.
void Planner::State::condemn(Slot slot, bool consumed) {
  Checkpoint& c = checkpoints[slot];
  if (c.condemned) return;
  History& h = history_of(c);
  while (remove_first_hint(slot)) {
  }
  if (const auto it = h.slots.find(c.version); it != h.slots.end() && it->second == slot) h.slots.erase(it);
  c.condemned = true;
  c.spent = consumed;
  for (TierIndex t = 0; t < tiers(); ++t) {  // readable or not, it is to go
    Replica& r = c.at[static_cast<std::size_t>(t)];
    r.failed = r.failed && memory(t) && in_lost_memory(c, t);
  }
  if (consumed) h.consumed.insert(c.version);
  const std::vector<MoveIndex> mine = c.moves;
  for (MoveIndex m : mine) {
    const Move& move = moves[static_cast<std::size_t>(m)];
    if (!move.live) continue;
    if (move.kind == MoveKind::flush && !move.cancelled) ++counters.dropped_flushes;
    // Also the write, under a restore in stream order that has returned.
    const bool feeds_reader =
        c.readers > 0 && (move.kind == MoveKind::prefetch || (move.kind == MoveKind::write && consumed));
    if (move.kind != MoveKind::read && !feeds_reader) cancel_move(m);
  }
  waits_progress(slot);
  refresh(slot);
  try_release(slot);
}

void Planner::State::try_release(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  if (!c.live) return;
  if (c.condemned && c.readers == 0) {
    for (TierIndex t = 0; t < tiers(); ++t) {
      Replica& r = c.at[static_cast<std::size_t>(t)];
      if (!complete(r.state) || r.uses > 0) continue;
      r.wanted = false;
      if (r.state != ReplicaState::consumed) set_state(slot, t, ReplicaState::consumed);
      remove_replica(slot, t, false);
    }
  }
  if (c.exists && !c.condemned) return;
  if (c.readers > 0 || c.reserving || c.submitted || !c.moves.empty() || c.hint != RestoreOrder::kNone) return;
  for (TierIndex t = 0; t < tiers(); ++t)
    if (c.at[static_cast<std::size_t>(t)].state != ReplicaState::gone) return;
  if (!c.condemned) {
    History& h = history_of(c);
    if (const auto it = h.slots.find(c.version); it != h.slots.end() && it->second == slot) h.slots.erase(it);
  }
  refresh(slot);
  --history_of(c).bearers;
  c.live = c.exists = c.stored = false;
  free_slots.push_back(slot);
}

void Planner::State::hints_changed(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  c.hint = history_of(c).order.first(slot);
  recount(slot);
  if (c.hint == RestoreOrder::kNone) {
    for (Replica& r : c.at) r.wanted = false;
  } else if (c.consumed) {
    c.consumed = false;
    for (Replica& r : c.at)
      if (r.state == ReplicaState::consumed && !r.failed) r.wanted = true;
  }
  refresh(slot);
}

void Planner::State::withdraw_hint(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  History& h = history_of(c);
  if (remove_first_hint(slot) && !c.exists) --h.unwritten;
  hints_changed(slot);
}

bool Planner::State::remove_first_hint(Slot slot) {
  Checkpoint& c = checkpoints[slot];
  History& h = history_of(c);
  const RestoreOrder::Position was = c.hint;
  if (!h.order.remove_first(slot)) return false;
  c.hint = h.order.first(slot);
  for (TierIndex t = 0; t < tiers(); ++t) {
    Cursor& served = h.served[static_cast<std::size_t>(t)];
    if (was < served.next && c.stored) served.ahead -= footprint(0, c.bytes);
  }
  if (was < h.ready.next && c.exists) --h.ready.count;
  recount(slot);  // a further hint of it may stand where it was passed over
  return true;
}

void Planner::State::recount(Slot slot) {
  const Checkpoint& c = checkpoints[slot];
  History& h = history_of(c);
  for (Cursor& served : h.served)
    if (c.hint < served.next) served = Cursor{};
  if (c.hint < h.ready.next) h.ready = Successors{};
}

}  // namespace ebb::policy
