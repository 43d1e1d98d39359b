// What comes up, and when. The plan is a walk over the restore order: the
// nearest checkpoints belong on the fastest tier as far as it reaches, the next
// ones on the next memory tier. Nothing nearer is ever displaced by something
// farther.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

// A program that writes is left alone: its next call is most likely another
// write, and a prefetch would compete with the flushes that it needs. It has
// turned round when it restores, says so, waits for its flushes, or has fallen
// silent.
bool Planner::State::prefetching(const History& h) {
  if (h.order.size() == 0) return false;
  if (context.machine.manual_prefetch && !h.started) return false;
  if (h.reading) return true;
  if (h.unwritten > 0) return false;
  constexpr Time kSilence = 2'000'000;
  const Time idle_at = h.last_write + std::max(kSilence, 4 * h.write_interval);
  if (context.now >= idle_at) return true;
  context.wake_by(idle_at);
  return false;
}

void Planner::State::schedule_prefetches() {
  if (!context.memory(0)) return;
  for (History& h : table.histories())
    if (prefetching(h)) prefetch(h);
}

void Planner::State::prefetch(History& h) {
  Bytes reach = 0;  // of this tier and those above
  for (TierIndex t = 0; t < context.tiers() && context.memory(t); ++t) {
    reach += space.map(t).capacity();
    const auto i = static_cast<std::size_t>(t);
    Cursor at = h.served[i];
    if (at.next < h.order.head()) at = Cursor{h.order.head(), 0};
    for (bool blocked = false; !blocked && at.next < h.order.tail();) {
      const Slot slot = h.order.at(at.next);
      if (slot != RestoreOrder::kWithdrawn) {
        const Checkpoint& c = table[slot];
        if (c.stored && c.hint == at.next && c.bytes > 0) {
          const Bytes ahead = at.ahead + space.footprint(0, c.bytes);
          blocked = ahead > reach || bring(slot, t, ahead) == Step::blocked;
          if (blocked) break;
          at.ahead = ahead;
        }
      }
      ++at.next;
    }
    h.served[i] = at;
  }
}

// Sees to it that a checkpoint is on `target` or above, or on its way there.
Planner::State::Step Planner::State::bring(Slot slot, TierIndex target, Bytes ahead) {
  Checkpoint& c = table[slot];
  TierIndex have = kNoTier;  // the fastest copy, or copy under way
  for (TierIndex t = 0; t < context.tiers() && have == kNoTier; ++t) {
    const Replica& r = c.at[static_cast<std::size_t>(t)];
    if (good(r) || transfers.filling(r)) have = t;
  }
  if (have == kNoTier) return Step::served;  // lost: nothing can be done
  if (have <= target) {
    Replica& r = c.at[static_cast<std::size_t>(have)];
    if (complete(r.state) && !r.wanted) {
      r.wanted = true;
      replicas.refresh(slot);
    }
    return Step::served;
  }
  if (c.prefetch_failures >= 2) return Step::served;
  if (c.at[static_cast<std::size_t>(target)].state != ReplicaState::gone) return Step::blocked;
  if (!transfers.room_for_more(have, target, MoveKind::prefetch)) return Step::blocked;
  const Rights rights{
      .who = Rights::prefetch, .distance = table.distance(c), .costly = ahead <= costly_window(c), .self = slot};
  const Room room = look(target, c.bytes, rights);
  if (!room.possible) return Step::blocked;
  if (room.wait > 0) {
    urge(target, room, rights, context.now);
    return Step::blocked;
  }
  take(target, slot, room, ReplicaState::reading);
  replicas.start_move(MoveKind::prefetch, slot, have, target, false, context.now);
  ++context.counters.prefetches;
  return Step::started;
}

// As far ahead as the slowest link must work so that it never idles: a few
// checkpoints, and what it carries meanwhile.
Bytes Planner::State::costly_window(const Checkpoint& c) const {
  constexpr double kSeconds = 0.02;
  double slowest = 0;
  for (TierIndex t = 0; t < context.tiers(); ++t)
    if (!context.memory(t)) slowest = transfers.link(transfers.route_of(t, kNoTier).link[0]).estimate.bytes_per_s();
  return 4 * space.footprint(0, c.bytes) + static_cast<Bytes>(slowest * kSeconds);
}

}  // namespace ebb::policy
