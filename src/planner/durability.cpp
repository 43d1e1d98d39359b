#include "planner/durability.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace ebb::planner {

using Stage = Filed::Stage;
using Standing = Filed::Standing;

namespace {

// `written`: the file has to hold it.
Standing standing_of(const Filed& filed, bool written) {
  if (!written) return Standing::none;
  if (filed.exempt) return Standing::owed;
  return durable(filed.state) ? Standing::safe : Standing::lined;
}

// Brings a checkpoint's place in a row to `is`. Another of its version may have taken the place.
void place(RecycledMap<Version, Slot>& row, Version version, Slot slot, bool is) {
  if (is)
    row[version] = slot;
  else if (const auto at = row.find(version); at != row.end() && at->second == slot)
    row.erase(at);
}

}  // namespace

void Durability::count(Slot slot) {
  if (!context_.counts_files()) return;
  const Checkpoint& c = table_[slot];
  bool written = c.stored();
  for (MoveIndex i : c.moves) written |= !transfers_[i].cancelled && transfers_[i].kind == MoveKind::write;
  written &= c.exists() && !c.nameless() && c.write != WriteState::reserved;
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t) count(slot, t, written);
}

// `written`: it exists, and its bytes are here or being written. What does not belong in the file counts as if not.
void Durability::count(Slot slot, TierIndex tier, bool written) {
  Checkpoint& c = table_[slot];
  Filed& filed = c.filed[tier];
  Level& level = of(tier);
  const Bytes size = space_.footprint(tier, c.bytes);
  written = written && (!context_.several_keep() || table_.belongs(c, tier));
  if (const Standing is = standing_of(filed, written); is != filed.standing) {
    const Standing was = filed.standing;
    filed.standing = is;
    if ((was == Standing::none) != (is == Standing::none)) level.owed += written ? size : -size;
    if ((was >= Standing::lined) != (is >= Standing::lined))
      place(table_.history_of(c).stored[tier].line, c.version, slot, is >= Standing::lined);
    if ((was == Standing::safe) != (is == Standing::safe))
      place(table_.history_of(c).stored[tier].safe, c.version, slot, is == Standing::safe);
    if ((was == Standing::owed) != (is == Standing::owed))
      place(table_.history_of(c).stored[tier].exempt, c.version, slot, is == Standing::owed);
  }
  if (const bool is = written && context_.several_keep() && table_.goes_below(c, tier); filed.passing != is) {
    filed.passing = is;
    level.passing += is ? size : -size;
  }
  const Stage is = stage_of(c, tier, written, size);
  if (is == filed.stage) return;
  const Stage was = filed.stage;
  filed.stage = is;
  if (was == Stage::filling) --level.filling;
  if (was == Stage::syncing) level.uncommitted = std::min(level.uncommitted, --level.syncing);
  if (was == Stage::unfiled) level.unfiled.erase({c.stored_at, slot});
  if (is == Stage::filling) ++level.filling;
  if (is == Stage::syncing) ++level.syncing, ++level.uncommitted;
  if (is == Stage::unfiled) level.unfiled.emplace(c.stored_at, slot);
}

Stage Durability::stage_of(const Checkpoint& c, TierIndex tier, bool written, Bytes size) const {
  const Replica& r = c.at[tier];
  if (r.filler != kNoMove) return Stage::filling;
  if (!written || !c.stored()) return Stage::none;
  if (good(r)) return c.filed[tier].state == FileState::pending ? Stage::syncing : Stage::none;
  const TierIndex bottom = table_.lowest(c);
  const bool may_go =
      (c.flush_failures == 0 || c.flush_retry <= context_.now) && size <= space_.map(tier).largest_segment();
  const bool from_here =
      bottom != kNoTier && (context_.memory(bottom) ? tier == context_.first_keeping : context_.lower(tier)) &&
      r.state == ReplicaState::gone && (!context_.lower(tier) || table_.next_below(c, bottom) == tier);
  return c.bytes > 0 && from_here && may_go ? Stage::unfiled : Stage::none;
}

// Which of a history's versions newer ones make up for: of those that are durable, or of all, once they are.
// What an earlier process left may be damaged until it has been read: it counts only where one of ours is newer. And it
// goes only for one of ours that is newer, or where room is needed. Below another file, newer ones make up also for
// what has not come, or is not durable.
std::vector<Durability::Superseded> Durability::superseded(const History& h, TierIndex tier, When when) const {
  if (context_.retention(tier).keep_last == 0) return {};  // however long the history is
  const bool all = when == When::all_is_durable;
  std::vector<Retained> newest_first;
  std::vector<Slot> slots_of;
  bool ours = false;
  std::uint64_t last_write = 0;  // of ours so far
  const auto& row = all || context_.lower(tier) ? h.stored[tier].line : h.stored[tier].safe;
  for (auto at = row.rbegin(); at != row.rend(); ++at) {
    const Checkpoint& c = table_[at->second];
    const Filed& filed = c.filed[tier];
    if (filed.state == FileState::failed || c.at[tier].failed) continue;  // nothing can be read of it
    const bool safe = all || durable(filed.state), recovered = of_earlier_process(filed.state);
    const std::uint64_t order = c.stored() ? c.stored_at : UINT64_MAX / 2 + c.written;
    const bool stays = recovered ? when == When::now && !ours : last_write <= order;
    const bool agreed = !context_.machine.retention.agreed || c.version <= h.agreed;
    newest_first.push_back({c.version, agreed && safe && (all || filed.state != FileState::recovered || ours), stays});
    slots_of.push_back(at->second);
    if (recovered || !safe) continue;
    ours = true;
    last_write = std::max(last_write, order);
  }
  std::vector<Superseded> found;
  for (const auto& [place, goes] : dispensable(context_.retention(tier), newest_first))
    found.push_back({.slot = slots_of[place], .goes = goes});
  if (context_.lower(tier) && !found.empty())
    for (const Version oldest = oldest_to_make_up(h); Superseded & one : found) {
      const Version version = table_[one.slot].version;
      one.made_up_for = version < oldest && !is_multiple(context_.retention(context_.first_keeping), version);
    }
  return found;
}

// The oldest of those that make up for all that are older, by the retention of the fastest file: what of the newer ones
// is durable in any file counts. -1: there are too few.
Version Durability::oldest_to_make_up(const History& h) const {
  const std::uint64_t keep_last = context_.retention(context_.first_keeping).keep_last;
  const Version agreed = context_.machine.retention.agreed ? h.agreed : std::numeric_limits<Version>::max();
  const auto state_of = [&](const auto& entry, TierIndex t) { return table_[entry->second].filed[t].state; };
  Version ours = -1;  // the newest of this process
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t)
    for (auto at = h.stored[t].safe.rbegin(); at != h.stored[t].safe.rend() && at->first > ours; ++at)
      if (!of_earlier_process(state_of(at, t))) ours = at->first;
  std::vector<Version> newest;  // of each row, as many as matter
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t)
    for (const auto* row : {&h.stored[t].safe, &h.stored[t].exempt}) {
      std::uint64_t left = keep_last;
      for (auto at = row->rbegin(); at != row->rend() && left > 0; ++at) {
        const FileState state = state_of(at, t);
        if (table_[at->second].at[t].failed) continue;
        if (at->first > agreed || !durable(state) || (state == FileState::recovered && at->first >= ours)) continue;
        newest.push_back(at->first);
        --left;
      }
    }
  std::ranges::sort(newest, std::greater<>());
  newest.erase(std::ranges::unique(newest).begin(), newest.end());
  return keep_last == 0 || newest.size() < keep_last ? -1 : newest[keep_last - 1];
}

// Bytes that are left were dropped after the last commit had begun, so another one may be asked for.
void Durability::set_unreleased(TierIndex tier, Bytes bytes) {
  space_.set_unreleased(tier, bytes);
  of(tier).releasing = 0;
}

void Durability::note_no_room(TierIndex tier, Bytes bytes) {
  if (!context_.keeps(tier)) return;
  Level& level = of(tier);
  level.full = true;
  if (!context_.counts_files()) return;
  level.lacks.bytes = std::max(level.lacks.bytes, space_.footprint(tier, bytes));
  level.lacks.nothing_comes |= !coming(tier);
}

// Whether something in flight may make room in the file: there, or below, where what has become durable is no longer
// needed here.
bool Durability::coming(TierIndex tier) const {
  if (settling(tier) || of(tier).filling > 0) return true;
  for (TierIndex t = context_.below(tier); t != kNoTier; t = context_.below(t))
    if (!silent(t) && (of(t).syncing > 0 || (of(t).filling > 0 && !stands_still(t)))) return true;
  return false;
}

bool Durability::stands_still(TierIndex tier) const {
  if (silent(tier)) return true;
  if (!context_.lower(tier) || of(tier).filling == 0) return false;
  const Route& route = links_.route(static_cast<TierIndex>(tier - 1), tier);
  return std::ranges::any_of(links_[route[route.hops - 1]].moves,
                             [&](MoveIndex i) { return transfers_[i].to == tier && transfers_[i].delayed; });
}

bool Durability::look_for_silence() {
  bool said = false;
  for (TierIndex t = context_.first_keeping + 1; t < context_.tiers(); ++t) {
    Level& level = of(t);
    bool busy = level.syncing > 0;
    Time heard = level.reported;
    for (const Link& link : links_.all()) {
      if (link.spec.from != context_.tier(t).node && link.spec.to != context_.tier(t).node) continue;
      busy |= link.estimate.in_flight() + link.carried > 0;
      heard = std::max(heard, link.heard);
    }
    if (std::exchange(level.busy, busy) != busy) heard = context_.now;
    const bool answers = heard > level.heard;
    level.heard = std::max(level.heard, heard);
    const bool silent = busy && (level.silent ? !answers : context_.now - level.heard >= kSilentAfter);
    if (busy && !silent) context_.wake_by(level.heard + kSilentAfter);
    if (silent == level.silent) continue;
    level.silent = silent;
    (silent ? context_.out->silent : context_.out->heard) |= 1u << t;
    said = true;
  }
  return said;
}

// What goes down to the file next: the first of those that wait, or, where nothing in flight can make room for that,
// the first that has room.
Slot Durability::next_to(TierIndex tier) const {
  const bool comes = coming(tier) || space_.spare_bytes(tier) > 0;
  const Bytes free = space_.free_bytes(tier);
  for (const auto& [order, slot] : of(tier).unfiled)
    if (comes || space_.footprint(tier, table_[slot].bytes) <= free) return slot;
  return kNoSlot;
}

// What the file has to hold, so that a new checkpoint becomes durable before anything is dropped for it.
Bytes Durability::needed_in_file(const Checkpoint& c) const {
  const TierIndex file = context_.first_keeping;
  Bytes needed = of(file).owed - of(file).passing + space_.footprint(file, c.bytes);
  if (needed <= space_.map(file).capacity()) return needed;
  for (const History& h : table_.histories()) {
    const auto subtract = [&](Slot slot) { needed -= space_.footprint(file, table_[slot].bytes); };
    for (const Superseded& one : superseded(h, file, When::all_is_durable))
      if (one.goes && !table_.goes_below(table_[one.slot], file)) subtract(one.slot);
  }
  return needed;
}

bool Durability::short_of_file(const Checkpoint& c) const {
  return needed_in_file(c) > space_.map(context_.first_keeping).capacity();
}

std::string Durability::describe_short(const Checkpoint& c) const {
  const TierIndex file = context_.first_keeping;
  const Bytes needed = needed_in_file(c), own = space_.footprint(file, c.bytes);
  return std::to_string(needed) + " bytes are needed on " + context_.tier(file).name + ", which has " +
         std::to_string(space_.map(file).capacity()) + ": " + std::to_string(own) + " for this version, and " +
         std::to_string(needed - own) +
         " for what stays until it is durable (keep_last=" + std::to_string(context_.retention(file).keep_last) +
         ", keep_every=" + std::to_string(context_.retention(file).keep_every) + ")";
}

void Durability::ask_to_commit(bool idle_calls) {
  bool full = false;  // this file, or one above, whose copies may go once they are durable here
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t) {
    Level& level = of(t);
    full |= level.full;
    if (level.uncommitted == 0 && space_.unreleased(t) <= level.releasing) continue;
    if (!full && !idle_calls) continue;
    context_.out->commit |= 1u << t;
    level.uncommitted = 0;
    level.releasing = space_.unreleased(t);
  }
}

}  // namespace ebb::planner
