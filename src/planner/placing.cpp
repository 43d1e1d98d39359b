#include "planner/placing.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ebb::planner {

// Calls that wait for room, in the order in which they came. One that can only live on the fastest tier keeps later
// ones from taking room there before it.
void Placing::serve_waiting() {
  bool fastest_taken = false;
  calls_.for_waiting([&](Request& r) {
    if (outgrown(r)) {
      const Bytes bytes = table_[r.checkpoint].bytes;
      const bool failed = r.kind == Request::Kind::checkpoint && space_.fits_somewhere(bytes);
      outcomes_.stop_waiting(
          r.id, failed ? Reason::lost : Reason::too_large,
          failed ? "it could not be written to any tier" : std::to_string(bytes) + " bytes; " + space_.describe());
      return;
    }
    // Waiting for what is in flight does not help: short_of_file() counts that as done.
    if (r.kind != Request::Kind::borrow && context_.counts_files() && durability_.short_of_file(table_[r.checkpoint])) {
      if (context_.now >= r.deadline)
        outcomes_.stop_waiting(r.id, Reason::no_space, durability_.describe_short(table_[r.checkpoint]));
      else if (r.deadline != kNever)
        context_.wake_by(r.deadline);
      return;
    }
    const bool only_fastest = r.kind != Request::Kind::checkpoint;
    if (!place(r, fastest_taken, false)) fastest_taken |= only_fastest;
  });
}

// Calls that wait for room while nothing in flight can make any. True: some no longer wait.
bool Placing::refuse_waiting() {
  bool changed = false;
  calls_.for_waiting([&](Request& r) {
    if (place(r, false, true) || (!room_may_come() && try_file_again(r))) {
      changed = true;
    } else if (!room_may_come() && context_.now >= r.deadline &&
               !(r.kind == Request::Kind::borrow && table_[r.checkpoint].at[0].filler != kNoMove)) {
      outcomes_.stop_waiting(r.id, Reason::no_space, space_.describe());
      changed = true;
    } else if (r.deadline != kNever) {
      context_.wake_by(std::max(r.deadline, context_.now + 1));
    }
  });
  return changed;
}

// True when the call no longer waits for room: it copies, or was answered.
bool Placing::place(Request& r, bool fastest_taken, bool at_any_cost) {
  if (r.kind == Request::Kind::borrow) return !fastest_taken && place_borrow(r);
  return place_write(r, fastest_taken, at_any_cost);
}

bool Placing::place_borrow(Request& r) {
  Checkpoint& c = table_[r.checkpoint];
  Replica& here = c.at[0];
  if (c.bytes == 0 || good(here)) {
    if (c.bytes > 0) ++here.uses;
    calls_.answer(r, Reason::ok);
    return true;
  }
  if (here.filler != kNoMove) {
    transfers_.make_demand(here.filler, r.since);
    return false;
  }
  if (here.state != ReplicaState::gone) return false;  // a failed one that is still read
  TierIndex from = kNoTier;
  for (TierIndex t = 1; t < context_.tiers() && from == kNoTier; ++t)
    if (good(c.at[t]) && !(r.excluded >> t & 1)) from = t;
  if (from == kNoTier)
    return r.waiting && r.excluded && outcomes_.stop_waiting(r.id, Reason::lost, "no tier could deliver it");
  const Rights rights{.who = Rights::demand, .self = r.checkpoint};
  const Room room = rooms_.look(0, c.bytes, rights);
  if (!room.possible) return false;
  if (room.wait > 0) {
    flush_planner_.urge(0, room, rights, r.since);
    return false;
  }
  rooms_.take(0, r.checkpoint, room, ReplicaState::reading);
  replicas_.start_move(MoveKind::prefetch, r.checkpoint, from, 0, true, r.since);
  return false;  // it waits on, for the bytes
}

bool Placing::place_write(Request& r, bool fastest_taken, bool at_any_cost) {
  const Slot slot = r.checkpoint;
  const Bytes bytes = table_[slot].bytes;
  const bool reserve = r.kind == Request::Kind::reserve;
  const Rights rights{.who = Rights::demand, .self = slot};
  if (context_.counts_files() && durability_.short_of_file(table_[slot])) return false;
  if (r.adopt > 0 && !fastest_taken && rooms_.adopt(slot, r.adopt)) {
    calls_.end_wait(r);
    table_[slot].at[0].uses = 1;
    calls_.answer(r, Reason::ok);
    return true;
  }
  TierIndex best = kNoTier, ready = kNoTier;
  Room best_room, ready_room;
  Time best_cost = kNever, ready_cost = kNever;
  // The first that is ready, unless its lender's pace makes it slow: then another may be quicker.
  const auto settled = [&] { return ready != kNoTier && !links_.paced(kNoTier, ready, bytes); };
  for (TierIndex t = 0; t < (reserve ? 1 : context_.write_tiers()) && !settled(); ++t) {
    if ((fastest_taken && t == 0) || r.excluded >> t & 1) continue;
    if (table_[slot].at[t].state != ReplicaState::gone) continue;
    if (!space_.fits(t, bytes)) continue;
    // With retention, checkpoints that were written earlier go to the file first.
    if (context_.counts_files() && context_.keeps(t) && durability_.next_to(t) != kNoSlot) continue;
    const Room room = rooms_.look(t, bytes, rights);
    if (!room.possible) {
      durability_.note_no_room(t, bytes);
      continue;
    }
    const bool shares = r.ordered || (t > 0 && context_.tier(t).medium == Medium::device);
    const Time cost = room.wait + links_.time(kNoTier, t, bytes) + (shares ? behind_flushes(t) : 0);
    if (cost < best_cost) best = t, best_cost = cost, best_room = room;
    if (room.wait == 0 && cost < ready_cost) ready = t, ready_cost = cost, ready_room = room;
  }
  if (best == kNoTier) {
    if (r.adopt > 0) flush_planner_.urge_adopted(rights, r.since);
    return false;
  }
  if (ready != kNoTier && (best == ready || context_.now >= r.fallback || at_any_cost)) {
    if (ready > 0) ++context_.counters.direct_writes;
    rooms_.take(ready, slot, ready_room, reserve ? ReplicaState::reserved : ReplicaState::writing);
    calls_.end_wait(r);
    if (reserve) {
      table_[slot].at[0].uses = 1;
      calls_.answer(r, Reason::ok);
    } else {
      r.move = replicas_.start_move(MoveKind::write, slot, kNoTier, ready, true, r.since, &r);
      outcomes_.start_parked(slot);
    }
    return true;
  }
  // Waiting is estimated to be quicker than the direct path, but never for longer than that path would have taken.
  if (ready != kNoTier) {
    if (r.fallback == kNever) r.fallback = r.since + ready_cost;
    context_.wake_by(std::max(r.fallback, context_.now + 1));
  }
  flush_planner_.urge(best, best_room, rights, r.since);
  return false;
}

// What a copy in stream order waits for on its way from the device past the fastest tier: that way is also the one of
// the flushes that make room there, and while it waits, so does the program's stream. A call that waits for the room
// holds up the host alone.
Time Placing::behind_flushes(TierIndex to) const {
  if (to == 0) return 0;
  Bytes left = 0;
  for (const MoveIndex i : links_[links_.route(0, to)[0]].moves) {
    const Move& m = transfers_[i];
    if (m.kind == MoveKind::flush && m.from == 0 && !m.cancelled) left += m.total - m.done;
  }
  return left > 0 ? links_.time(0, to, left) : 0;
}

// A read tries once more what the file has refused: caches that are full of that have no other way to give it room.
// True: something is tried.
bool Placing::try_file_again(Request& r) {
  if (r.kind != Request::Kind::borrow || context_.machine.ephemeral || std::exchange(r.file_tried, true)) return false;
  bool any = false;
  for (Slot s = 0; s < table_.size(); ++s) {
    Checkpoint& c = table_[s];
    if (!c.live()) continue;
    bool refused = c.flush_failures > 0 && std::exchange(c.flush_retry, 0) > context_.now;
    for (MoveIndex i : c.moves) {
      if (!transfers_[i].delayed || context_.lower(transfers_[i].to)) continue;
      transfers_.undelay(transfers_[i]);
      context_.out->commit |= 1u << transfers_[i].to;
      refused = true;
    }
    if (refused) replicas_.refresh(s);
    any |= refused;
  }
  return any;
}

// No tier that may take it is as large, since memory has ended early: it would never get room.
bool Placing::outgrown(const Request& r) const {
  const Checkpoint& c = table_[r.checkpoint];
  if (r.kind == Request::Kind::checkpoint) return !space_.fits_somewhere(c.bytes, r.excluded);
  const bool fits = space_.fits(0, c.bytes) || (r.adopt > 0 && space_.may_adopt(0, c.bytes));
  return c.bytes > 0 && !fits && c.at[0].state == ReplicaState::gone;
}

}  // namespace ebb::planner
