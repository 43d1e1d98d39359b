// What becomes durable in the slowest tier's file, and what retention drops for
// it (retention.hpp has the rule).
//
// A file that holds what retention keeps and one checkpoint more always makes
// progress, however large each of them is:
//   - A checkpoint that no such room is left for is refused when it is asked
//   for (short_of_file).
//   - Checkpoints come to the file in the order in which they became complete,
//   so that each of them finds there what
//     was kept when it was asked for, and nothing that is newer.
//   - What is complete in the file and not durable yet is under way: who needs
//   room waits for it, and has it committed.
//   - What an earlier process left behind is dropped where room is needed, once
//   what makes up for it was read.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {

// The checkpoint that is reported; nullptr: it is gone, or there is no
// retention.
Checkpoint* Planner::State::reported(HistoryId client, Version version, bool complete_there) {
  const Slot slot = table.lookup(client, version);
  if (!context.retains() || slot == kNoSlot || !table[slot].exists) return nullptr;
  Checkpoint& c = table[slot];
  const Replica& there = c.at[static_cast<std::size_t>(context.last_tier())];
  if (there.state == ReplicaState::gone || (complete_there && !complete(there.state)))
    throw std::logic_error(key_text(c) + " is not in the file, and was reported durable");
  return &c;
}

void Planner::State::on(HistoryId client, const event::Durable& e) {
  Checkpoint* const c = reported(client, e.version, true);
  if (c == nullptr) return;
  c->durable = Checkpoint::Durable::yes;
  c->intact = true;
  replicas.refresh(table.lookup(client, e.version));
  retire(table.history(client), Durability::When::now);
}

void Planner::State::on(HistoryId client, const event::NotDurable& e) {
  Checkpoint* const c = reported(client, e.version, false);
  if (c == nullptr) return;
  if (c->durable == Checkpoint::Durable::pending) c->durable = Checkpoint::Durable::failed;
  replicas.refresh(table.lookup(client, e.version));
}

// Whether anything went.
bool Planner::State::retire(History& h, Durability::When when) {
  bool any = false;
  for (const auto& [slot, goes] : durability.made_up_for(h, when)) {
    Checkpoint& c = table[slot];
    if (goes) {
      context.out->retired.push_back({c.history, c.version});
      drop(slot);
      any = true;
    } else {
      c.exempt = true;
      durability.count(slot);
    }
  }
  return any;
}

// A process that was killed leaves more than retention says, perhaps all that
// the file can hold. Older ones of those go once so many newer ones were read
// and found to be intact.
void Planner::State::make_room_in_file() {
  bool any = false;
  for (History& h : table.histories()) any |= retire(h, Durability::When::room_is_needed);
  if (any) {
    context.dirty = true;
    return;
  }
  for (const History& h : table.histories())
    if (std::ranges::any_of(durability.made_up_for(h, Durability::When::all_is_durable),
                            [&](const Durability::MadeUpFor& one) { return one.goes && table[one.slot].adopted; }))
      start_checks(h);
}

void Planner::State::start_checks(const History& h) {
  const auto last = context.last_tier();
  std::uint64_t count = 0;
  bool ours = false;
  for (auto at = h.line.rbegin(); at != h.line.rend() && count < context.machine.retention.keep_last; ++at) {
    const Slot slot = at->second;
    Checkpoint& c = table[slot];
    if (c.durable != Checkpoint::Durable::yes) continue;
    ours |= !c.adopted;
    const bool counts = c.intact || ours;
    const bool under_way =
        std::ranges::any_of(c.moves, [&](MoveIndex i) { return transfers[i].kind == MoveKind::check; });
    if (!counts && !under_way) {
      if (c.prefetch_failures >= 2 || !good(c.at[static_cast<std::size_t>(last)])) continue;
      if (!transfers.room_for_more(last, kNoTier, MoveKind::check)) return;
      replicas.start_move(MoveKind::check, slot, last, kNoTier, true, context.now);
    }
    ++count;
  }
}

}  // namespace ebb::policy
