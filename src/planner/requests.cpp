// Writes and reservations, and how calls are answered.
#include <algorithm>
#include <utility>

#include "planner/state.hpp"

namespace ebb::policy {

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
  if (reason == Reason::ok && (r.kind == Request::Kind::reserve || r.kind == Request::Kind::borrow)) {
    a.place = {{Endpoint::tier, 0}, checkpoints[r.checkpoint].at[0].offset};
    held.emplace(r.id, Hold{r.checkpoint});
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
    const Bytes used = memory(t) ? maps[i].used() : file_used[i];
    text += (t ? "; " : "") + spec.name + ": " + std::to_string(used) + " of " + std::to_string(maps[i].lent()) +
            " bytes used";
    if (memory(t)) text += ", largest gap " + std::to_string(maps[i].largest_gap());
  }
  return text;
}

bool Planner::State::fits_somewhere(Bytes bytes, std::uint32_t excluded) const {
  for (TierIndex t = 0; t < tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    if (!(excluded >> t & 1) && footprint(t, bytes) <= maps[i].largest_segment()) return true;
  }
  return false;
}

// Complete in the slowest tier's file without a command: nothing of it has to be moved.
void Planner::State::lie_in_file(Slot slot) {
  const auto t = static_cast<TierIndex>(tiers() - 1);
  Checkpoint& c = checkpoints[slot];
  file_used[static_cast<std::size_t>(t)] += footprint(t, c.bytes);
  ++replicas[static_cast<std::size_t>(t)];
  for (const ReplicaState to :
       {ReplicaState::init, ReplicaState::writing, ReplicaState::written, ReplicaState::flushed})
    set_state(slot, t, to);
  c.at[static_cast<std::size_t>(t)].watermark = c.bytes;
}

// --- writing --------------------------------------------------------------------------------------------------------

// `e`: a Checkpoint or a Reserve.
template <class Write>
bool Planner::State::begin_write(HistoryId client, const Write& e, Slot& slot, Request& r) {
  const Slot found = lookup(client, e.version);
  if (found != UINT32_MAX && checkpoints[found].exists) {
    answer_plain(e.request, Reason::version_exists, key_text(checkpoints[found]) + " was written already");
    return false;
  }
  constexpr bool reserve = std::is_same_v<Write, event::Reserve>;
  if (reserve && !memory(0)) {
    answer_plain(e.request, Reason::no_such_tier, "the fastest tier is not memory");
    return false;
  }
  if (e.bytes > 0 && (reserve ? footprint(0, e.bytes) > maps[0].largest_segment() : !fits_somewhere(e.bytes))) {
    answer_plain(e.request, Reason::too_large, std::to_string(e.bytes) + " bytes; " + describe_tiers());
    return false;
  }
  slot = obtain(client, e.version);
  Checkpoint& c = checkpoints[slot];
  History& h = histories[client];
  h.unwritten -= h.order.count(slot);
  if (c.hint < h.ready.next) h.ready = Successors{};  // it was passed over
  h.consumed.erase(e.version);
  h.lost.erase(e.version);
  h.reading = false;
  if (h.last_write > 0) h.write_interval += (now - h.last_write - h.write_interval) / 4;
  h.last_write = now;
  c.exists = true;
  c.reserving = reserve;
  c.write_failed = false;
  c.bytes = e.bytes;
  c.written = c.touched = ++sequence;
  c.hinted = h.reverse;
  if (h.reverse) hint(client, e.version, true);
  r.id = e.request;
  r.kind = reserve ? Request::Kind::reserve : Request::Kind::checkpoint;
  r.checkpoint = slot;
  r.since = now;
  r.deadline = e.timeout >= kNever - now ? kNever : now + e.timeout;
  if constexpr (!reserve) r.ordered = e.ordered;
  return true;
}

void Planner::State::on(HistoryId client, const event::Checkpoint& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = requests.emplace(r.id, r).first->second;
  if (e.bytes == 0) {
    stored(checkpoints[slot]);
    if (keeps_in_file()) lie_in_file(slot);
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

void Planner::State::on(HistoryId client, const event::Reserve& e) {
  Slot slot;
  Request r;
  if (!begin_write(client, e, slot, r)) return;
  Request& kept = requests.emplace(r.id, r).first->second;
  dirty = true;
  if (e.bytes == 0) return answer(kept, Reason::ok);
  if (!waiting.empty() || !place(kept, false, false)) {
    kept.waiting = true;
    waiting.push_back(kept.id);
  }
}

// The checkpoint that a granted reserve or borrow holds; nullopt: none (any more).
std::optional<Hold> Planner::State::give_back(RequestId held_by) {
  const auto it = held.find(held_by);
  if (it == held.end()) return std::nullopt;
  const Hold hold = it->second;
  if (hold.ending) --ending;
  held.erase(it);
  return hold;
}

void Planner::State::on(HistoryId, const event::Submit& e) {
  if (const auto restore = requests.find(e.request); restore != requests.end()) {
    Request& r = restore->second;
    if (!machine.ephemeral || r.keep) return;
    // Settled now: what becomes of its hints before its copies have ended says nothing any more.
    r.keep = checkpoints[r.checkpoint].hint != RestoreOrder::kNone;
    if (!r.keep) condemn(r.checkpoint, true);
    return;
  }
  const auto it = held.find(e.request);
  if (it == held.end()) return;
  Hold& hold = it->second;
  ending += (e.by_stream ? 1 : 0) - (hold.ending ? 1 : 0);
  hold.ending = e.by_stream;
  dirty = true;
  Checkpoint& c = checkpoints[hold.checkpoint];
  if (hold.memory_only || c.submitted) return;
  if (c.reserving) {
    c.reserving = false;
    c.submitted = true;
  } else {
    const Slot slot = hold.checkpoint;
    hold.memory_only = true;
    if (c.bytes == 0) give_back(e.request);  // no memory, which would keep the checkpoint's place in the table
    finish_read(slot, e.keep);
  }
}

void Planner::State::on(HistoryId, const event::Commit& e) {
  const auto hold = give_back(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  Checkpoint& c = checkpoints[slot];
  if (c.bytes > 0) {
    if (!e.in_use) c.at[0].uses = 0;
    c.at[0].watermark = c.bytes;
    set_state(slot, 0, ReplicaState::written);
  }
  if (e.in_use && c.bytes > 0) held.emplace(e.request, Hold{.checkpoint = slot, .memory_only = true});
  stored(c);
  c.reserving = c.submitted = false;
  if (c.bytes > 0 && c.at[0].failed) {  // its memory was lost
    start_parked(slot);
    give_up_failed(slot);
    return try_release(slot);
  }
  if (c.bytes == 0 && !c.condemned && keeps_in_file()) lie_in_file(slot);
  if (c.condemned) {  // dropped meanwhile
    refresh(slot);
    start_parked(slot);  // asked for before that
    try_release(slot);
    return;
  }
  hints_changed(slot);
  start_parked(slot);  // asked for before the stream that computed it was done
  if (!waits.empty()) waits_progress(slot);
}

void Planner::State::on(HistoryId, const event::Abandon& e) {
  const auto hold = give_back(e.request);
  if (!hold) return;
  const Slot slot = hold->checkpoint;
  unwrite(slot);
  if (checkpoints[slot].bytes > 0) {
    checkpoints[slot].at[0].uses = 0;
    remove_replica(slot, 0, false);
  }
  try_release(slot);
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
  if (!c.condemned && std::exchange(c.hinted, false)) withdraw_hint(slot);
  if (!c.condemned) history_of(c).unwritten += history_of(c).order.count(slot);
  c.exists = c.stored = c.reserving = c.submitted = false;
  bool lingering = c.readers > 0 || !c.moves.empty();
  for (const Replica& r : c.at) lingering |= r.state != ReplicaState::gone;
  if (lingering && !c.condemned) detach(slot);
  waits_progress(slot);
  refresh(slot);
  start_parked(slot);
  const std::vector<RequestId> order = waiting;
  for (RequestId id : order) {
    const auto it = requests.find(id);
    if (it != requests.end() && it->second.checkpoint == slot && it->second.kind == Request::Kind::borrow)
      c.write_failed ? stop_waiting(id, Reason::lost, "no tier could deliver it")
                     : stop_waiting(id, Reason::unknown_version, "it was not written after all");
  }
}

}  // namespace ebb::policy
