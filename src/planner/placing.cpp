// Which tier a new checkpoint goes to, when a call that waits for room gets it, and when it is refused.
#include <algorithm>

#include "planner/state.hpp"

namespace ebb::policy {

// Calls that wait for room, in the order in which they came. One that can only live on the fastest tier keeps later
// ones from taking room there under its eyes.
void Planner::State::serve_waiting() {
  const std::vector<RequestId> order = waiting;
  bool fastest_taken = false;
  for (RequestId id : order) {
    const auto it = requests.find(id);
    if (it == requests.end() || !it->second.waiting) continue;
    if (outgrown(it->second)) {
      const Bytes bytes = checkpoints[it->second.checkpoint].bytes;
      const bool failed = it->second.kind == Request::Kind::checkpoint && fits_somewhere(bytes);
      stop_waiting(
          id, failed ? Reason::lost : Reason::too_large,
          failed ? "it could not be written to any tier" : std::to_string(bytes) + " bytes; " + describe_tiers());
      continue;
    }
    // Nothing under way helps: all of that is counted as done.
    if (Request& r = it->second;
        r.kind != Request::Kind::borrow && retains() && short_of_file(checkpoints[r.checkpoint])) {
      if (now >= r.deadline)
        stop_waiting(id, Reason::no_space, describe_short(checkpoints[r.checkpoint]));
      else if (r.deadline != kNever)
        wakeup = std::min(wakeup, r.deadline);
      continue;
    }
    const bool only_fastest = it->second.kind != Request::Kind::checkpoint;
    if (place(it->second, fastest_taken, false)) continue;
    fastest_taken |= only_fastest;
  }
}

// True when the call no longer waits for room: it copies, or was answered.
bool Planner::State::place(Request& r, bool fastest_taken, bool at_any_cost) {
  if (r.kind == Request::Kind::borrow) return !fastest_taken && place_borrow(r);
  return place_write(r, fastest_taken, at_any_cost);
}

// No tier that may take it is as large, since memory has ended early: it would wait for ever.
bool Planner::State::outgrown(const Request& r) const {
  const Checkpoint& c = checkpoints[r.checkpoint];
  if (r.kind == Request::Kind::checkpoint) return !fits_somewhere(c.bytes, r.excluded);
  return c.bytes > 0 && footprint(0, c.bytes) > maps[0].largest_segment() && c.at[0].state == ReplicaState::gone;
}

bool Planner::State::place_borrow(Request& r) {
  Checkpoint& c = checkpoints[r.checkpoint];
  Replica& here = c.at[0];
  if (c.bytes == 0 || good(here)) {
    if (c.bytes > 0) ++here.uses;
    answer(r, Reason::ok);
    return true;
  }
  if (here.filler != kNoMove) {
    make_demand(here.filler, r.since);
    return false;
  }
  if (here.state != ReplicaState::gone) return false;  // a failed one that is still read
  TierIndex from = kNoTier;
  for (TierIndex t = 1; t < tiers() && from == kNoTier; ++t)
    if (good(c.at[static_cast<std::size_t>(t)]) && !(r.excluded >> t & 1)) from = t;
  if (from == kNoTier) return r.waiting && r.excluded && stop_waiting(r.id, Reason::lost, "no tier could deliver it");
  const Rights rights{.who = Rights::demand, .self = r.checkpoint};
  const Room room = look(0, c.bytes, rights);
  if (!room.possible) return false;
  if (room.wait > 0) {
    urge(0, room, rights, r.since);
    return false;
  }
  take(0, r.checkpoint, room, ReplicaState::reading);
  start_move(MoveKind::prefetch, r.checkpoint, from, 0, 0, true, r.since);
  return false;  // it waits on, for the bytes
}

bool Planner::State::place_write(Request& r, bool fastest_taken, bool at_any_cost) {
  const Slot slot = r.checkpoint;
  const Bytes bytes = checkpoints[slot].bytes;
  const bool reserve = r.kind == Request::Kind::reserve;
  const Rights rights{.who = Rights::demand, .self = slot};
  if (retains() && short_of_file(checkpoints[slot])) return false;
  TierIndex best = kNoTier, ready = kNoTier;
  Room best_room, ready_room;
  Time best_cost = kNever, ready_cost = kNever;
  for (TierIndex t = 0; t < (reserve ? 1 : tiers()) && ready == kNoTier; ++t) {
    if ((fastest_taken && t == 0) || r.excluded >> t & 1) continue;
    if (checkpoints[slot].at[static_cast<std::size_t>(t)].state != ReplicaState::gone) continue;
    if (footprint(t, bytes) > maps[static_cast<std::size_t>(t)].largest_segment()) continue;
    if (retains() && t == tiers() - 1 && next_to_file() != kNoSlot) continue;  // not before what was written earlier
    const Room room = look(t, bytes, rights);
    if (!room.possible) {
      no_room_yet(t);
      continue;
    }
    const Time cost = room.wait + route_time(kNoTier, t, bytes);
    if (cost < best_cost) best = t, best_cost = cost, best_room = room;
    if (room.wait == 0) ready = t, ready_cost = cost, ready_room = room;
  }
  if (best == kNoTier) return false;
  if (ready != kNoTier && (best == ready || now >= r.fallback || at_any_cost)) {
    if (ready > 0) ++counters.direct_writes;
    take(ready, slot, ready_room, reserve ? ReplicaState::reserved : ReplicaState::writing);
    if (r.waiting) {
      r.waiting = false;
      waiting.erase(std::find(waiting.begin(), waiting.end(), r.id));
    }
    if (reserve) {
      checkpoints[slot].at[0].uses = 1;
      answer(r, Reason::ok);
    } else {
      r.move = start_move(MoveKind::write, slot, kNoTier, ready, r.id, true, r.since);
    }
    return true;
  }
  // Waiting is estimated to be quicker than the direct path, but never for longer than that path would have taken.
  if (ready != kNoTier) {
    if (r.fallback == kNever) r.fallback = r.since + ready_cost;
    wakeup = std::min(wakeup, std::max(r.fallback, now + 1));
  }
  urge(best, best_room, rights, r.since);
  return false;
}

// After everything that can be sent was sent: with nothing in flight, no transfer can make room any more.
void Planner::State::refuse_stuck() {
  while (!under_way()) {
    bool changed = false;
    const std::vector<RequestId> order = waiting;
    for (RequestId id : order) {
      const auto it = requests.find(id);
      if (it == requests.end() || !it->second.waiting) continue;
      Request& r = it->second;
      if (place(r, false, true)) {
        changed = true;
      } else if (!under_way() && now >= r.deadline &&
                 !(r.kind == Request::Kind::borrow && checkpoints[r.checkpoint].at[0].filler != kNoMove)) {
        stop_waiting(id, Reason::no_space, "no transfer under way can make room; " + describe_tiers());
        changed = true;
      } else if (r.deadline != kNever) {
        wakeup = std::min(wakeup, std::max(r.deadline, now + 1));
      }
    }
    if (!changed && !dirty) break;
    for (int round = 0; dirty && round < 64; ++round) {
      dirty = false;
      if (!waiting.empty()) serve_waiting();
      schedule_flushes();
      schedule_prefetches();
    }
    issue();
    if (!changed) break;
  }
  if (under_way() || waits.empty()) return;
  // Flushes that someone waits for and that cannot go on.
  std::vector<RequestId> stuck;
  for (const auto& [id, w] : waits) {
    bool retrying = false;
    for (Slot s : w.open) retrying |= !checkpoints[s].stored;
    if (!retrying) stuck.push_back(id);
  }
  for (RequestId id : stuck) {
    const Wait& w = waits.at(id);
    const Slot s = *std::min_element(w.open.begin(), w.open.end(),
                                     [&](Slot a, Slot b) { return checkpoints[a].version < checkpoints[b].version; });
    const Checkpoint& c = checkpoints[s];
    const bool failed = c.flush_failures > 0;
    const std::string there = machine.tiers[static_cast<std::size_t>(w.tier)].name;
    Answer a;
    a.request = id;
    a.reason = failed ? Reason::lost : Reason::no_space;
    a.checkpoint = ref(s);
    a.detail = key_text(c) + ", of " + std::to_string(c.bytes) + " bytes, " +
               (failed ? "could not be written to " : "has no room on ") + there +
               ", and nothing under way will change that; " + describe_tiers();
    waits.erase(id);
    out->answers.push_back(std::move(a));
  }
}

}  // namespace ebb::policy
