// What becomes durable in the slowest tier's file, and what retention drops for it (retention.hpp has the rule).
//
// A file that holds what retention keeps and one checkpoint more always makes progress, however large each of them is:
//   - A checkpoint that no such room is left for is refused when it is asked for (short_of_file).
//   - Checkpoints come to the file in the order in which they became complete, so that each of them finds there what
//     was kept when it was asked for, and nothing that is newer.
//   - What is complete in the file and not durable yet is under way: who needs room waits for it, and has it committed.
//   - What an earlier process left behind is dropped where room is needed, once what makes up for it was read.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

void Planner::State::stored(Checkpoint& c) {
  c.stored = true;
  c.hinted = false;
  c.stored_at = ++sequence;
}

// Brings the counts to what the facts say.
void Planner::State::count_kept(Slot slot) {
  if (!retains()) return;
  const auto last = static_cast<std::size_t>(tiers() - 1);
  Checkpoint& c = checkpoints[slot];
  const Replica& r = c.at[last];
  bool written = c.stored, on_its_way = false;
  for (MoveIndex i : c.moves) {
    const Move& m = moves[static_cast<std::size_t>(i)];
    if (m.cancelled) continue;
    written |= m.kind == MoveKind::write;
    on_its_way |= m.to == tiers() - 1;
  }
  written &= c.exists && !c.condemned && !c.reserving;
  const Bytes size = footprint(tiers() - 1, c.bytes);
  if (c.owed != written) {
    c.owed = written;
    owed += written ? size : -size;
  }
  if (const bool is = written && !c.exempt; c.lined != is) {
    c.lined = is;
    std::map<Version, Slot>& line = history_of(c).line;
    if (is)
      line[c.version] = slot;
    else if (const auto at = line.find(c.version); at != line.end() && at->second == slot)
      line.erase(at);
  }
  if (const bool is = written && c.stored && good(r) && c.durable == Checkpoint::Durable::pending; c.syncing != is) {
    c.syncing = is;
    is ? ++syncing : --syncing;
    uncommitted = is ? uncommitted + 1 : std::min(uncommitted, syncing);
  }
  if (const bool is = r.filler != kNoMove; c.filling != is) {
    c.filling = is;
    is ? ++filling : --filling;
  }
  const TierIndex bottom = lowest(c);
  const bool may_go = (c.flush_failures == 0 || c.flush_retry <= now) && size <= maps[last].largest_segment();
  const bool to_go = written && c.stored && c.bytes > 0 && r.state == ReplicaState::gone && !on_its_way &&
                     bottom != kNoTier && memory(bottom) && may_go;
  if (c.unfiled != to_go) {
    c.unfiled = to_go;
    if (to_go)
      unfiled.emplace(c.stored_at, slot);
    else
      unfiled.erase({c.stored_at, slot});
  }
}

// The checkpoint that is reported; nullptr: it is gone, or there is no retention.
Checkpoint* Planner::State::reported(HistoryId client, Version version, bool complete_there) {
  const Slot slot = lookup(client, version);
  if (!retains() || slot == kNoSlot || !checkpoints[slot].exists) return nullptr;
  Checkpoint& c = checkpoints[slot];
  const Replica& there = c.at[static_cast<std::size_t>(tiers() - 1)];
  if (there.state == ReplicaState::gone || (complete_there && !complete(there.state)))
    throw std::logic_error(key_text(c) + " is not in the file, and was reported durable");
  return &c;
}

void Planner::State::on(HistoryId client, const event::Durable& e) {
  Checkpoint* const c = reported(client, e.version, true);
  if (c == nullptr) return;
  c->durable = Checkpoint::Durable::yes;
  c->intact = true;
  refresh(lookup(client, e.version));
  retire(histories[client], When::now);
}

void Planner::State::on(HistoryId client, const event::NotDurable& e) {
  Checkpoint* const c = reported(client, e.version, false);
  if (c == nullptr) return;
  if (c->durable == Checkpoint::Durable::pending) c->durable = Checkpoint::Durable::failed;
  refresh(lookup(client, e.version));
}

// Which of a history's versions newer ones make up for: of those that are durable, or of all, once they are.
// What an earlier process left and nobody has read may be damaged: it counts only where one of ours is newer. And it
// goes only for one of ours that is newer, or where room is needed.
std::vector<Planner::State::MadeUpFor> Planner::State::made_up_for(const History& h, When when) const {
  const bool all = when == When::all_is_durable;
  std::vector<Retained> newest_first;
  std::vector<Slot> slots_of;
  bool ours = false;
  std::uint64_t last_write = 0;  // of ours so far
  for (auto at = h.line.rbegin(); at != h.line.rend(); ++at) {
    const Checkpoint& c = checkpoints[at->second];
    if (all ? c.durable == Checkpoint::Durable::failed : c.durable != Checkpoint::Durable::yes) continue;
    const std::uint64_t order = c.stored ? c.stored_at : UINT64_MAX / 2 + c.written;
    const bool stays = c.adopted ? when == When::now && !ours : last_write <= order;
    newest_first.push_back({c.version, all || c.intact || ours, stays});
    slots_of.push_back(at->second);
    if (c.adopted) continue;
    ours = true;
    last_write = std::max(last_write, order);
  }
  std::vector<MadeUpFor> found;
  for (const auto& [place, goes] : dispensable(machine.retention, newest_first))
    found.push_back({slots_of[place], goes});
  return found;
}

// Whether anything went.
bool Planner::State::retire(History& h, When when) {
  bool any = false;
  for (const auto& [slot, goes] : made_up_for(h, when)) {
    Checkpoint& c = checkpoints[slot];
    if (goes) {
      out->retired.push_back({c.history, c.version});
      drop(slot);
      any = true;
    } else {
      c.exempt = true;
      count_kept(slot);
    }
  }
  return any;
}

void Planner::State::no_room_yet(TierIndex tier) {
  if (!retains() || tier != tiers() - 1) return;
  file_full = true;
  nothing_comes |= syncing == 0 && filling == 0;
}

// A process that was killed leaves more than retention says, perhaps all that the file can hold. Older ones of those go
// once so many newer ones were read and found to be intact.
void Planner::State::make_room_in_file() {
  bool any = false;
  for (History& h : histories) any |= retire(h, When::room_is_needed);
  if (any) {
    dirty = true;
    return;
  }
  for (const History& h : histories)
    if (std::ranges::any_of(made_up_for(h, When::all_is_durable),
                            [&](const MadeUpFor& one) { return one.goes && checkpoints[one.slot].adopted; }))
      start_checks(h);
}

void Planner::State::start_checks(const History& h) {
  const auto last = static_cast<TierIndex>(tiers() - 1);
  std::uint64_t count = 0;
  bool ours = false;
  for (auto at = h.line.rbegin(); at != h.line.rend() && count < machine.retention.keep_last; ++at) {
    const Slot slot = at->second;
    Checkpoint& c = checkpoints[slot];
    if (c.durable != Checkpoint::Durable::yes) continue;
    ours |= !c.adopted;
    const bool counts = c.intact || ours;
    const bool under_way = std::ranges::any_of(
        c.moves, [&](MoveIndex i) { return moves[static_cast<std::size_t>(i)].kind == MoveKind::check; });
    if (!counts && !under_way) {
      if (c.prefetch_failures >= 2 || !good(c.at[static_cast<std::size_t>(last)])) continue;
      if (!room_for_more(last, kNoTier, MoveKind::check)) return;
      start_move(MoveKind::check, slot, last, kNoTier, 0, true, now);
    }
    ++count;
  }
}

// What goes down to the file next: the first of those that wait, or, where nothing under way can make room for that,
// the first that has room.
Slot Planner::State::next_to_file() const {
  const bool coming = syncing > 0 || filling > 0;
  const Bytes free = free_bytes(static_cast<TierIndex>(tiers() - 1));
  for (const auto& [order, slot] : unfiled)
    if (coming || footprint(static_cast<TierIndex>(tiers() - 1), checkpoints[slot].bytes) <= free) return slot;
  return kNoSlot;
}

// What the file has to hold, so that a new checkpoint becomes durable before anything is dropped for it.
Bytes Planner::State::needed_in_file(const Checkpoint& c) const {
  const auto last = static_cast<TierIndex>(tiers() - 1);
  Bytes needed = owed + footprint(last, c.bytes);
  if (needed <= maps[static_cast<std::size_t>(last)].capacity()) return needed;
  for (const History& h : histories)
    for (const auto& [slot, goes] : made_up_for(h, When::all_is_durable))
      if (goes) needed -= footprint(last, checkpoints[slot].bytes);
  return needed;
}

bool Planner::State::short_of_file(const Checkpoint& c) const { return needed_in_file(c) > maps.back().capacity(); }

std::string Planner::State::describe_short(const Checkpoint& c) const {
  const Bytes needed = needed_in_file(c), own = footprint(static_cast<TierIndex>(tiers() - 1), c.bytes);
  return std::to_string(needed) + " bytes are needed on " + machine.tiers.back().name + ", which has " +
         std::to_string(maps.back().capacity()) + ": " + std::to_string(own) + " for this version, and " +
         std::to_string(needed - own) +
         " for what stays until it is durable (keep_last=" + std::to_string(machine.retention.keep_last) +
         ", keep_every=" + std::to_string(machine.retention.keep_every) + ")";
}

void Planner::State::ask_to_commit() {
  const bool stands = !waiting.empty() || !waits.empty();
  const bool held_up = file_full || (stands && commands_in_flight == 0 && ending == 0 && held_moves == 0);
  if (uncommitted == 0 || !held_up) return;
  out->commit = true;
  uncommitted = 0;
}

}  // namespace ebb::policy
