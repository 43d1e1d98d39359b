#include "planner/durability.hpp"

#include <algorithm>
#include <map>

namespace ebb::planner {

void Durability::count(Slot slot) {
  if (!context_.retains()) return;
  const TierIndex last = context_.last_tier();
  Checkpoint& c = table_[slot];
  const Replica& r = c.at[last];
  bool written = c.stored, on_its_way = false;
  for (MoveIndex i : c.moves) {
    const Move& m = transfers_[i];
    if (m.cancelled) continue;
    written |= m.kind == MoveKind::write;
    on_its_way |= m.to == last;
  }
  written &= c.exists && !c.pending_delete && !c.reserving;
  const Bytes size = space_.footprint(last, c.bytes);
  if (c.owed != written) {
    c.owed = written;
    owed_ += written ? size : -size;
  }
  if (const bool is = written && !c.exempt; c.lined != is) {
    c.lined = is;
    std::map<Version, Slot>& line = table_.history_of(c).line;
    if (is)
      line[c.version] = slot;
    else if (const auto at = line.find(c.version); at != line.end() && at->second == slot)
      line.erase(at);
  }
  if (const bool is = written && c.stored && good(r) && c.durable == Checkpoint::Durable::pending; c.syncing != is) {
    c.syncing = is;
    is ? ++syncing_ : --syncing_;
    uncommitted_ = is ? uncommitted_ + 1 : std::min(uncommitted_, syncing_);
  }
  if (const bool is = r.filler != kNoMove; c.filling != is) {
    c.filling = is;
    is ? ++filling_ : --filling_;
  }
  const TierIndex bottom = table_.lowest(c);
  const bool may_go =
      (c.flush_failures == 0 || c.flush_retry <= context_.now) && size <= space_.map(last).largest_segment();
  const bool to_go = written && c.stored && c.bytes > 0 && r.state == ReplicaState::gone && !on_its_way &&
                     bottom != kNoTier && context_.memory(bottom) && may_go;
  if (c.unfiled != to_go) {
    c.unfiled = to_go;
    if (to_go)
      unfiled_.emplace(c.stored_at, slot);
    else
      unfiled_.erase({c.stored_at, slot});
  }
}

// Which of a history's versions newer ones make up for: of those that are durable, or of all, once they are.
// What an earlier process left may be damaged until it has been read: it counts only where one of ours is newer. And it
// goes only for one of ours that is newer, or where room is needed.
std::vector<Durability::Superseded> Durability::superseded(const History& h, When when) const {
  const bool all = when == When::all_is_durable;
  std::vector<Retained> newest_first;
  std::vector<Slot> slots_of;
  bool ours = false;
  std::uint64_t last_write = 0;  // of ours so far
  for (auto at = h.line.rbegin(); at != h.line.rend(); ++at) {
    const Checkpoint& c = table_[at->second];
    if (all ? c.durable == Checkpoint::Durable::failed : c.durable != Checkpoint::Durable::yes) continue;
    const std::uint64_t order = c.stored ? c.stored_at : UINT64_MAX / 2 + c.written;
    const bool stays = c.recovered ? when == When::now && !ours : last_write <= order;
    newest_first.push_back({c.version, all || c.intact || ours, stays});
    slots_of.push_back(at->second);
    if (c.recovered) continue;
    ours = true;
    last_write = std::max(last_write, order);
  }
  std::vector<Superseded> found;
  for (const auto& [place, goes] : dispensable(context_.machine.retention, newest_first))
    found.push_back({slots_of[place], goes});
  return found;
}

// Bytes that are left were dropped after the last commit had begun, so another one may be asked for.
void Durability::set_unreleased(Bytes bytes) {
  space_.set_unreleased(bytes);
  releasing_ = 0;
}

void Durability::note_no_room(TierIndex tier) {
  if (!context_.keeps_in_file() || tier != context_.last_tier()) return;
  file_full_ = true;
  nothing_comes_ |= context_.retains() && !settling() && filling_ == 0;
}

// What goes down to the file next: the first of those that wait, or, where nothing in flight can make room for that,
// the first that has room.
Slot Durability::next_to_file() const {
  const bool coming = settling() || filling_ > 0;
  const Bytes free = space_.free_bytes(context_.last_tier());
  for (const auto& [order, slot] : unfiled_)
    if (coming || space_.footprint(context_.last_tier(), table_[slot].bytes) <= free) return slot;
  return kNoSlot;
}

// What the file has to hold, so that a new checkpoint becomes durable before anything is dropped for it.
Bytes Durability::needed_in_file(const Checkpoint& c) const {
  const auto last = context_.last_tier();
  Bytes needed = owed_ + space_.footprint(last, c.bytes);
  if (needed <= space_.map(last).capacity()) return needed;
  for (const History& h : table_.histories())
    for (const auto& [slot, goes] : superseded(h, When::all_is_durable))
      if (goes) needed -= space_.footprint(last, table_[slot].bytes);
  return needed;
}

bool Durability::short_of_file(const Checkpoint& c) const {
  return needed_in_file(c) > space_.map(context_.last_tier()).capacity();
}

std::string Durability::describe_short(const Checkpoint& c) const {
  const Bytes needed = needed_in_file(c), own = space_.footprint(context_.last_tier(), c.bytes);
  return std::to_string(needed) + " bytes are needed on " + context_.machine.tiers.back().name + ", which has " +
         std::to_string(space_.map(context_.last_tier()).capacity()) + ": " + std::to_string(own) +
         " for this version, and " + std::to_string(needed - own) +
         " for what stays until it is durable (keep_last=" + std::to_string(context_.machine.retention.keep_last) +
         ", keep_every=" + std::to_string(context_.machine.retention.keep_every) + ")";
}

void Durability::ask_to_commit(bool idle_calls) {
  if (uncommitted_ == 0 && space_.unreleased() <= releasing_) return;
  if (!file_full_ && !idle_calls) return;
  context_.out->commit = true;
  uncommitted_ = 0;
  releasing_ = space_.unreleased();
}

}  // namespace ebb::planner
