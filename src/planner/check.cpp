// The invariants, checked as a whole. Tests call it after every step.
#include <algorithm>
#include <stdexcept>

#include "planner/state.hpp"

namespace ebb::policy {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("planner invariant broken: ") + what);
}

}  // namespace

void Planner::State::check() const {
  std::vector<Bytes> used(machine.tiers.size());
  std::vector<std::uint32_t> count(machine.tiers.size());
  std::vector<std::array<std::uint16_t, kMaxTiers>> uses(checkpoints.size());
  std::size_t live = 0;
  int held_back = 0, submitted = 0;
  std::vector<std::array<std::size_t, 2>> slots_used(machine.nodes.size());
  for (const Move& m : moves) {
    if (!m.live) continue;
    ++live;
    held_back += m.held ? 1 : 0;
    require(!m.held || (m.in_flight == 0 && m.ordered && !m.cancelled),
            "what waits for its stream has nothing under way");
    require(checkpoints[m.checkpoint].live, "a move belongs to a live checkpoint");
    require(m.done <= m.issued && m.issued <= m.total, "done <= issued <= total");
    if (m.from != kNoTier) ++uses[m.checkpoint][static_cast<std::size_t>(m.from)];
    if (m.to != kNoTier) {
      const Replica& r = checkpoints[m.checkpoint].at[static_cast<std::size_t>(m.to)];
      require(&moves[static_cast<std::size_t>(r.filler)] == &m, "a replica knows the move that fills it");
      require(r.state == ReplicaState::writing || r.state == ReplicaState::reading,
              "only an incomplete replica is filled");
    }
    const Checkpoint& read = checkpoints[m.checkpoint];
    const MoveIndex filler = m.from == kNoTier ? kNoMove : read.at[static_cast<std::size_t>(m.from)].filler;
    const bool ending = m.cancelled || (filler != kNoMove && moves[static_cast<std::size_t>(filler)].cancelled);
    for (const Chunk& k : m.chunks)
      require(ending || !k.moving || k.hop > 0 || k.offset + k.length <= readable(m),
              "only a call in stream order is ahead of what it reads");
    for (const Chunk& k : m.chunks)
      for (int r = 0; r < rings_of(m); ++r)
        if (k.slot[static_cast<std::size_t>(r)] >= 0)
          ++slots_used[static_cast<std::size_t>(node_behind(m, r))][goes_down(m) ? 0 : 1];
  }
  require(live == live_moves, "moves are counted");
  std::vector<int> carried(links.size()), in_flight(links.size());
  for (const auto& [id, entry] : commands) {
    const Move& m = moves[static_cast<std::size_t>(entry.move)];
    const auto link = static_cast<std::size_t>(m.route.link[static_cast<std::size_t>(entry.hop)]);
    if (entry.carried)
      ++carried[link];
    else if (!on_its_stream(m))
      ++in_flight[link];
  }
  for (std::size_t l = 0; l < links.size(); ++l)
    require(links[l].carried == carried[l] && links[l].estimate.in_flight() == in_flight[l],
            "what is on a link, and what it is done with, is counted");
  for (const auto& [id, hold] : held) submitted += hold.ending ? 1 : 0;
  require(held_back == held_moves && submitted == ending, "what ends by itself is counted");
  for (std::size_t node = 0; node < machine.nodes.size(); ++node)
    for (const std::size_t d : {0u, 1u})
      require(
          slots_used[node][d] + free_slots_of[node][d].size() == static_cast<std::size_t>(machine.nodes[node].staging),
          "no slot of a staging ring is lost");
  for (Slot s = 0; s < checkpoints.size(); ++s) {
    const Checkpoint& c = checkpoints[s];
    const TierIndex bottom = lowest(c);
    require(c.hint == histories[c.history].order.first(s), "a checkpoint knows its first hint");
    if (!c.live)
      require(c.hint == RestoreOrder::kNone && c.moves.empty() && c.listed_on == kNoTier, "a free slot is bare");
    for (TierIndex t = 0; t < tiers(); ++t) {
      const auto i = static_cast<std::size_t>(t);
      const Replica& r = c.at[i];
      if (r.state == ReplicaState::gone) {
        require(r.uses == 0 && r.filler == kNoMove && !r.wanted, "nothing uses what is gone");
        continue;
      }
      require(c.live && r.state != ReplicaState::init, "replicas belong to live checkpoints");
      used[i] += footprint(t, c.bytes);
      ++count[i];
      require(r.uses >= uses[s][i], "every move out of a replica is a use");
      if (beyond(c, t) && r.filler != kNoMove) {
        const Move& m = moves[static_cast<std::size_t>(r.filler)];
        require(m.cancelled || all_out(m), "nothing more is given to memory that will not come");
      } else if (beyond(c, t)) {
        require(r.uses > 0 || (complete(r.state) && fastest(c) == t && bottom == t),
                "what lies beyond the end of memory is in use or the only copy");
      }
      require(!r.failed || complete(r.state) || (memory(t) && in_lost_memory(c, t)),
              "only what was complete is given up as failed");
      if (!good(r)) continue;
      require(r.watermark == c.bytes && r.filler == kNoMove, "complete means every byte");
      if (r.state == ReplicaState::flushed) require(safe_below(c, t) || t == tiers() - 1, "flushed means safe");
      if (r.state == ReplicaState::written) require(!safe_below(c, t) && t < tiers() - 1, "written means not safe");
      require((r.state == ReplicaState::read_complete) == r.wanted || c.consumed, "read_complete means wanted");
    }
    const bool failing = std::any_of(c.at.begin(), c.at.end(), [](const Replica& r) { return r.failed; });
    if (c.live && !c.condemned && c.stored && c.bytes > 0)
      require(bottom != kNoTier || failing, "what is stored is somewhere");
  }
  for (TierIndex t = 0; t < tiers(); ++t) {
    const auto i = static_cast<std::size_t>(t);
    require(count[i] == replicas[i], "replicas are counted");
    if (!memory(t)) {
      require(used[i] == file_used[i], "a file tier's bytes are counted");
      continue;
    }
    maps[i].check();
    require(used[i] == maps[i].used(), "a fragment map holds its replicas and nothing else");
    for (const FragmentMap::Fragment& f : maps[i].fragments())
      if (f.owner != FragmentMap::kGap)
        require(f.owner < checkpoints.size() && checkpoints[f.owner].at[i].offset == f.offset &&
                    checkpoints[f.owner].at[i].state != ReplicaState::gone,
                "a fragment and its replica agree");
  }
  check_kept();
  std::vector<std::size_t> bearers(histories.size());
  for (const Checkpoint& c : checkpoints)
    if (c.live) ++bearers[c.history];
  for (const History& h : histories) {
    require(h.bearers == bearers[static_cast<std::size_t>(&h - histories.data())],
            "a history's checkpoints are counted");
    std::size_t unwritten = 0, ready = 0;
    for (auto p = h.order.head(); p < h.order.tail(); ++p)
      if (h.order.at(p) != RestoreOrder::kWithdrawn && !checkpoints[h.order.at(p)].exists) ++unwritten;
    for (auto p = h.order.head(); p < std::min(h.ready.next, h.order.tail()); ++p) {
      if (h.order.at(p) == RestoreOrder::kWithdrawn || !checkpoints[h.order.at(p)].exists) continue;
      require(fastest(checkpoints[h.order.at(p)]) == 0, "ready successors are on the fastest tier");
      ++ready;
    }
    require(ready == h.ready.count, "ready successors are counted");
    require(unwritten == h.unwritten, "hints for what is not written are counted");
  }
}

void Planner::State::check_kept() const {
  Bytes counted = 0;
  std::size_t lined = 0, in_line = 0, to_go = 0, pending = 0, coming = 0;
  for (const History& h : histories) in_line += h.line.size();
  for (Slot s = 0; s < checkpoints.size(); ++s) {
    const Checkpoint& c = checkpoints[s];
    require(retains() || !(c.owed || c.lined || c.syncing || c.filling || c.unfiled),
            "only retention counts what is kept");
    if (!retains()) continue;
    const Replica& r = c.at[static_cast<std::size_t>(tiers() - 1)];
    const bool there = c.live && c.exists && !c.condemned && c.stored && !c.reserving;
    require(!there || c.owed, "what is stored is owed to the file");
    require(!c.owed || (c.live && c.exists && !c.condemned), "nothing else is");
    require(c.syncing == (there && good(r) && c.durable == Checkpoint::Durable::pending),
            "what is not durable yet is known");
    require(c.filling == (r.filler != kNoMove), "what is on its way to the file is known");
    require(c.lined == (c.owed && !c.exempt), "retention sees all that is kept");
    require(!c.unfiled || unfiled.contains({c.stored_at, s}), "what has yet to go to the file is in line for it");
    if (c.lined) {
      const auto at = histories[c.history].line.find(c.version);
      require(at != histories[c.history].line.end() && at->second == s, "retention sees each version once");
    }
    counted += c.owed ? footprint(static_cast<TierIndex>(tiers() - 1), c.bytes) : 0;
    lined += c.lined;
    to_go += c.unfiled;
    pending += c.syncing;
    coming += c.filling;
  }
  require(counted == owed && lined == in_line && to_go == unfiled.size() && pending == syncing && coming == filling,
          "what is kept is counted");
  require(uncommitted <= syncing, "no commit is asked for what is durable");
}

}  // namespace ebb::policy
