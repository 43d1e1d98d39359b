#include "planner/invariants.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

namespace ebb::planner {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("planner invariant broken: ") + what);
}

}  // namespace

void Invariants::check() const {
  const Uses uses = check_moves();
  check_commands();
  check_replicas(uses);
  check_durability();
  check_histories();
}

Invariants::Uses Invariants::check_moves() const {
  Uses uses(table_.size());
  std::map<std::pair<NodeIndex, int>, std::array<std::size_t, 2>> slots_used;  // of each ring
  std::size_t live = 0;
  int held_back = 0, delayed = 0;
  for (const Move& m : transfers_.moves_) {
    if (!m.live) continue;
    ++live;
    held_back += m.held ? 1 : 0;
    delayed += m.delayed ? m.in_flight : 0;
    require(!m.held || (m.in_flight == 0 && m.ordered && !m.cancelled),
            "what waits for its stream has nothing in flight");
    require(table_[m.checkpoint].live(), "a move belongs to a live checkpoint");
    require(m.done <= m.issued && m.issued <= m.until && m.until <= m.total, "done <= issued <= until <= total");
    if (m.from != kNoTier) ++uses[m.checkpoint][m.from];
    if (m.to != kNoTier) {
      const Replica& r = table_[m.checkpoint].at[m.to];
      require(&transfers_[r.filler] == &m, "a replica knows the move that fills it");
      require(r.state == ReplicaState::writing || r.state == ReplicaState::reading,
              "only an incomplete replica is filled");
    }
    const Checkpoint& read = table_[m.checkpoint];
    const MoveIndex filler = m.from == kNoTier ? kNoMove : read.at[m.from].filler;
    const bool ending = m.cancelled || (filler != kNoMove && transfers_[filler].cancelled);
    for (const Chunk& k : m.chunks)
      require(ending || !k.moving || k.hop > 0 || k.offset + k.length <= transfers_.readable(m),
              "only a call in stream order is ahead of what it reads");
    for (const Chunk& k : m.chunks)
      for (int r = 0; r < rings_of(m, k.way); ++r)
        if (const int slot = k.slot[static_cast<std::size_t>(r)]; slot >= 0)
          ++slots_used[{transfers_.node_behind(m, {k.way, r}), StagingRings::ring_of(slot)}][goes_down(m) ? 0 : 1];
  }
  require(live == transfers_.live_ && held_back == transfers_.held_ && delayed == transfers_.delayed_,
          "moves are counted");
  for (NodeIndex node = 0; node < static_cast<NodeIndex>(context_.machine.nodes.size()); ++node)
    for (int number = 0; number < rings_.count(node); ++number)
      for (const std::size_t d : {0u, 1u}) {
        const StagingRings::Ring& ring = rings_.at(node).ring(number);
        require(slots_used[{node, number}][d] + ring.free[d].size() == static_cast<std::size_t>(ring.slots),
                "no slot of a staging ring is lost");
      }
  return uses;
}

void Invariants::check_commands() const {
  const std::vector<Link>& links = links_.all();
  std::vector<int> carried(links.size()), in_flight(links.size());
  std::map<std::pair<int, PartyId>, int> copied_by;
  for (const auto& [id, entry] : transfers_.commands_) {
    const Move& m = transfers_[entry.move];
    const auto link = static_cast<std::size_t>(entry.link);
    if (entry.carried)
      ++carried[link];
    else if (!on_its_stream(m))
      ++in_flight[link];
    if (links[link].between_lent_and_host) ++copied_by[{entry.link, entry.copied_by}];
  }
  for (const auto& [on, count] : copied_by)
    require(links[static_cast<std::size_t>(on.first)].in_flight_of(on.second) == count &&
                count <= links[static_cast<std::size_t>(on.first)].spec.depth,
            "what each lender's device copies is counted, and no more than a link holds");
  for (std::size_t l = 0; l < links.size(); ++l)
    require(links[l].carried == carried[l] && links[l].estimate.in_flight() == in_flight[l],
            "what is on a link, and what it is done with, is counted");
  int submitted = 0;
  for (const auto& [id, hold] : calls_.held_) submitted += hold.ending ? 1 : 0;
  require(submitted == calls_.ending_, "what ends by itself is counted");
}

void Invariants::check_replicas(const Uses& uses) const {
  PerTier<Bytes> used{}, lent{};
  PerTier<std::uint32_t> count{};
  for (Slot s = 0; s < table_.size(); ++s) {
    const Checkpoint& c = table_[s];
    const TierIndex bottom = table_.lowest(c);
    require(c.hint == table_.history_of(c).order.first(s), "a checkpoint knows its first hint");
    if (!c.live())
      require(c.hint == RestoreOrder::kNone && c.moves.empty() && c.listed_on == kNoTier, "a free slot is bare");
    check_split(c);
    require(c.makes_way == kNoTier || c.at[c.makes_way].state != ReplicaState::gone, "what makes way is still there");
    for (TierIndex t = 0; t < context_.tiers(); ++t) {
      check_replica(c, t);
      if (c.at[t].state == ReplicaState::gone) continue;
      (adopted(c.at[t]) ? lent : used)[t] += space_.footprint(t, c.bytes_on(t));
      ++count[t];
      require(c.at[t].uses >= uses[s][t], "every move out of a replica is a use");
    }
    require(c.live() || c.write == WriteState::unwritten, "nothing is written of a checkpoint that is not");
    if (c.name == NameState::consumed)
      require(c.stored() && c.hint == RestoreOrder::kNone, "what is consumed was stored, and is not hinted");
    const bool failing = std::any_of(c.at.begin(), c.at.end(), [](const Replica& r) { return r.failed; });
    if (c.live() && !c.nameless() && c.stored() && c.bytes > 0)
      require(bottom != kNoTier || failing, "what is stored is somewhere");
  }
  for (TierIndex t = 0; t < context_.tiers(); ++t) {
    const TierUse use = space_.use(t);
    require(count[t] == use.replicas, "replicas are counted");
    require(lent[t] == use.adopted && lent[t] <= space_.adoptable(t), "what is adopted is counted, and within bounds");
    if (!context_.memory(t)) {
      require(used[t] == use.used, "a file tier's bytes are counted");
      continue;
    }
    space_.map(t).check();
    require(used[t] == use.used, "a fragment map holds its replicas and nothing else");
    for (const auto& [offset, f] : space_.map(t).fragments())
      if (f.owner != FragmentMap::kGap)
        require(f.owner < table_.size() && table_[f.owner].at[t].offset == f.offset &&
                    table_[f.owner].at[t].state != ReplicaState::gone,
                "a fragment and its replica agree");
  }
}

void Invariants::check_split(const Checkpoint& c) const {
  if (!c.in_parts()) return;
  const auto [on, rest, head] = c.split;
  require(on < rest && context_.memory(on) && context_.memory(rest) && 0 < head && head < c.bytes,
          "a replica has parts in two tiers of memory");
  require(c.at[on].state != ReplicaState::gone, "one in parts is on the tier that counts");
  if (c.splitting()) {
    bool coming = false;
    for (const TierIndex t : {on, rest}) {
      coming |= c.at[t].filler != kNoMove;
      require(c.at[t].uses == 0, "nothing reads what is not all there");
    }
    require(coming, "parts that are not all there are on their way");
    return;
  }
  require(c.at[rest].uses > 0, "the first part uses the rest");
  require(complete(c.at[rest].state) || c.at[rest].state == ReplicaState::writing, "the rest is there");
  require(!complete(c.at[rest].state) || c.at[on].uses > 0, "the first part goes once all is where the rest is");
}

void Invariants::check_replica(const Checkpoint& c, TierIndex t) const {
  const Replica& r = c.at[t];
  if (r.state == ReplicaState::gone)
    return require(r.uses == 0 && r.filler == kNoMove && !r.wanted, "nothing uses what is gone");
  require(c.live() && r.state != ReplicaState::init, "replicas belong to live checkpoints");
  if (space_.beyond(c, t) && r.filler != kNoMove) {
    const Move& m = transfers_[r.filler];
    require(m.cancelled || transfers_.all_out(m), "nothing more is given to memory that will not come");
  } else if (space_.beyond(c, t)) {
    require(r.uses > 0 || (complete(r.state) && table_.fastest(c) == t && table_.lowest(c) == t),
            "what is beyond the end of memory is in use or the only copy");
  }
  require(!r.failed || complete(r.state) || (context_.memory(t) && space_.in_lost_memory(c, t)),
          "only what was complete is marked failed");
  if (!good(r)) return;
  require(r.watermark == c.bytes_on(t) && r.filler == kNoMove, "complete means every byte");
  if (r.state == ReplicaState::flushed)
    require(table_.safe_below(c, t) || !table_.goes_below(c, t), "flushed means safe");
  if (r.state == ReplicaState::written)
    require(!table_.safe_below(c, t) && table_.goes_below(c, t), "written means not safe");
  require((r.state == ReplicaState::read_complete) == r.wanted || c.name == NameState::consumed,
          "read_complete means wanted");
}

void Invariants::check_histories() const {
  std::vector<std::size_t> live_checkpoints(table_.histories().size());
  for (Slot s = 0; s < table_.size(); ++s)
    if (table_[s].live()) ++live_checkpoints[table_[s].history];
  for (const History& h : table_.histories()) {
    require(h.live_checkpoints == live_checkpoints[static_cast<std::size_t>(&h - table_.histories().data())],
            "a history's checkpoints are counted");
    std::size_t unwritten = 0, ready = 0;
    for (auto p = h.order.head(); p < h.order.tail(); ++p)
      if (h.order.at(p) != RestoreOrder::kWithdrawn && !table_[h.order.at(p)].exists()) ++unwritten;
    for (auto p = h.order.head(); p < std::min(h.ready.next, h.order.tail()); ++p) {
      if (h.order.at(p) == RestoreOrder::kWithdrawn || !table_[h.order.at(p)].exists()) continue;
      require(table_.fastest(table_[h.order.at(p)]) == 0, "ready successors are on the fastest tier");
      ++ready;
    }
    require(ready == h.ready.count, "ready successors are counted");
    require(unwritten == h.unwritten, "hints for what is not written are counted");
  }
}

void Invariants::check_durability() const {
  for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t) check_durability(t);
}

void Invariants::check_durability(TierIndex tier) const {
  Bytes counted = 0, passing = 0;
  std::size_t lined = 0, in_line = 0, to_go = 0, pending = 0, coming = 0;
  const Durability::Level& level = durability_.of(tier);
  for (const History& h : table_.histories()) in_line += h.stored[tier].line.size();
  for (Slot s = 0; s < table_.size(); ++s) {
    const Checkpoint& c = table_[s];
    const Filed& filed = c.filed[tier];
    require(context_.counts_files() || (filed.standing == Filed::Standing::none && filed.stage == Filed::Stage::none),
            "only retention counts what is kept");
    if (!context_.counts_files()) continue;
    const Replica& r = c.at[tier];
    const bool owed = filed.standing != Filed::Standing::none, is_lined = filed.standing >= Filed::Standing::lined;
    const bool there = c.live() && !c.nameless() && c.stored() && table_.belongs(c, tier);
    require(!there || owed, "what is stored is owed to the file");
    require(!owed || (c.live() && c.exists() && !c.nameless()), "nothing else is");
    require((filed.stage == Filed::Stage::syncing) == (there && good(r) && filed.state == FileState::pending),
            "what is not durable yet is known");
    require((filed.stage == Filed::Stage::filling) == (r.filler != kNoMove), "what is on its way to the file is known");
    require(is_lined == (owed && !filed.exempt), "retention sees all that is kept");
    require(filed.stage != Filed::Stage::unfiled || level.unfiled.contains({c.stored_at, s}),
            "what has yet to go to the file is in line for it");
    require((filed.standing == Filed::Standing::safe) == (is_lined && durable(filed.state)),
            "retention knows what is durable");
    if (filed.standing == Filed::Standing::safe) {
      const auto at = table_.history_of(c).stored[tier].safe.find(c.version);
      require(at != table_.history_of(c).stored[tier].safe.end() && at->second == s,
              "retention sees each durable version once");
    }
    if (is_lined) {
      const auto& line = table_.history_of(c).stored[tier].line;
      const auto at = line.find(c.version);
      require(at != line.end() && at->second == s, "retention sees each version once");
    }
    require(filed.passing == (owed && context_.several_keep() && table_.goes_below(c, tier)),
            "what goes on down is known");
    passing += filed.passing ? space_.footprint(tier, c.bytes) : 0;
    counted += owed ? space_.footprint(tier, c.bytes) : 0;
    lined += is_lined;
    to_go += filed.stage == Filed::Stage::unfiled;
    pending += filed.stage == Filed::Stage::syncing;
    coming += filed.stage == Filed::Stage::filling;
  }
  require(counted == level.owed && passing == level.passing && lined == in_line && to_go == level.unfiled.size() &&
              pending == level.syncing && coming == level.filling,
          "what is kept is counted");
  require(level.uncommitted <= level.syncing, "no commit is asked for what is durable");
}

}  // namespace ebb::planner
