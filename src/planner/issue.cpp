// What each link carries next: by chunk, over one hop or through the staging ring over two, the most urgent first.
#include <algorithm>
#include <iterator>

#include "planner/state.hpp"

namespace ebb::policy {

// 0: a call stands; 1: what the program does now (flushes while it writes, prefetches while it reads); 2: the other.
int Planner::State::urgency(const Move& m) const {
  if (m.demand) return 0;
  // With retention, what somebody waits for comes behind all that was written before it.
  if (m.kind == MoveKind::flush && (m.forced || (retains() && !waits.empty()))) return 1;
  const bool reading = histories[checkpoints[m.checkpoint].history].reading;
  return (m.kind == MoveKind::prefetch) == reading ? 1 : 2;
}

// Whether others can be ordered behind its copies on the device: those of a calling thread and of files are on no
// stream.
bool Planner::State::on_streams(const Move& m) const {
  return m.route.hops == 1 && (m.from == kNoTier ? m.ordered : memory(m.from));
}

// Up to where the bytes that a move reads can be had. A copy in stream order, which the device can make wait for
// another, also has those for which the last copy has been ordered.
Bytes Planner::State::readable(const Move& m) const {
  if (m.from == kNoTier) return m.total;
  const Replica& source = checkpoints[m.checkpoint].at[static_cast<std::size_t>(m.from)];
  if (!m.ordered || m.route.hops != 1 || source.filler == kNoMove) return source.watermark;
  const Move& filler = moves[static_cast<std::size_t>(source.filler)];
  Bytes ready = source.watermark;
  if (!on_streams(filler)) return ready;
  for (const Chunk& k : filler.chunks) {
    if (!k.moving && !arrived(filler, k)) break;
    ready = k.offset + k.length;
  }
  return ready;
}

// The command that brings the last of the bytes before `end` to where `m` reads them; 0: they are there.
CommandId Planner::State::coming_last(const Move& m, Bytes end) const {
  if (m.from == kNoTier) return 0;
  const Replica& source = checkpoints[m.checkpoint].at[static_cast<std::size_t>(m.from)];
  if (source.watermark >= end) return 0;
  CommandId last = 0;
  for (const Chunk& k : moves[static_cast<std::size_t>(source.filler)].chunks)
    if (k.offset < end && k.moving) last = k.command;
  return last;
}

NodeIndex Planner::State::node_behind(const Move& m, int hop) const { return link_of(m, hop).spec.to; }

std::vector<int>& Planner::State::free_slots_behind(const Move& m, int hop) {
  return free_slots_of[static_cast<std::size_t>(node_behind(m, hop))][goes_down(m) ? 0 : 1];
}
const std::vector<int>& Planner::State::free_slots_behind(const Move& m, int hop) const {
  return free_slots_of[static_cast<std::size_t>(node_behind(m, hop))][goes_down(m) ? 0 : 1];
}

void Planner::State::return_slot(const Move& m, Chunk& k, int hop) {
  int& slot = k.slot[static_cast<std::size_t>(hop)];
  if (slot >= 0) free_slots_behind(m, hop).push_back(slot);
  slot = -1;
}

void Planner::State::return_slots(const Move& m, Chunk& k) {
  for (int r = 0; r < rings_of(m); ++r) return_slot(m, k, r);
}

// Whether anything could be sent, were there a slot of the ring for it.
bool Planner::State::unsent_on(const Move& m, int hop) const {
  if (m.cancelled || m.held) return false;
  if (hop == 0 && m.issued < m.total && readable(m) > m.issued) return true;
  return std::ranges::any_of(m.chunks, [&](const Chunk& k) { return k.hop == hop && !k.moving; });
}

bool Planner::State::pending_on(const Move& m, int hop) const {
  if (unsent_on(m, hop)) return true;
  if (m.cancelled || m.held) return false;
  return std::ranges::any_of(m.chunks, [&](const Chunk& k) { return k.hop == hop; });
}

int Planner::State::next_chunk(const Move& m, int hop, Bytes& length) const {
  if (m.cancelled || m.held) return kNothing;
  // A chunk takes a slot of every ring on its way before it begins, so that none waits for another's on the way. The
  // last slots are for calls that block.
  for (int r = 0; hop == 0 && r < rings_of(m); ++r) {
    const int slots = machine.nodes[static_cast<std::size_t>(node_behind(m, r))].staging;
    const auto free = static_cast<int>(free_slots_behind(m, r).size());
    if (free <= (m.demand ? 0 : std::min(2, slots / 4))) return kNothing;
  }
  for (std::size_t i = 0; i < m.chunks.size(); ++i)
    if (m.chunks[i].hop == hop && !m.chunks[i].moving) {
      length = m.chunks[i].length;
      return static_cast<int>(i);
    }
  if (hop != 0 || m.issued >= m.total) return kNothing;
  const Bytes ready = readable(m);
  if (ready <= m.issued) return kNothing;
  Bytes most = ready - m.issued;
  for (int h = 0; h < m.route.hops; ++h) most = std::min(most, link_of(m, h).spec.chunk);
  if (rings_of(m) > 0) most = std::min(most, machine.ring_slot);
  length = most;
  return kNewChunk;
}

void Planner::State::issue() {
  const auto to_send = [](const Link& link) { return link.to_send; };
  find_urgent();
  for (std::vector<int> before; issue_round();) {
    before.clear();
    std::ranges::transform(links, std::back_inserter(before), to_send);
    find_urgent();
    if (std::ranges::equal(links, before, {}, to_send)) return;  // else all that was most urgent is on its way
  }
}

void Planner::State::find_urgent() {
  for (Link& link : links) {
    link.to_send = link.pending = 3;
    if (link.rivals.empty()) continue;
    for (MoveIndex i : link.moves) {
      const Move& m = moves[static_cast<std::size_t>(i)];
      for (int h = 0; h < m.route.hops; ++h) {
        if (&link_of(m, h) != &link || !pending_on(m, h)) continue;
        link.pending = std::min(link.pending, urgency(m));
        if (unsent_on(m, h)) link.to_send = std::min(link.to_send, urgency(m));
      }
    }
  }
}

// Links that share such a resource: the less urgent wait while the more urgent have anything to send on any of them, or
// under way. But on its own link what the program does now comes right behind it, so that the device always has work.
bool Planner::State::yields(const Link& link, int urgency) const {
  return std::ranges::any_of(link.rivals, [&](int rival) {
    const Link& other = links[static_cast<std::size_t>(rival)];
    return (&other == &link && urgency == 1 ? other.to_send : other.pending) < urgency;
  });
}

// True if anything was sent.
bool Planner::State::issue_round() {
  bool sent = false;
  for (std::size_t l = 0; l < links.size(); ++l) {
    Link& link = links[l];
    const int depth = link.depth();
    // What is not wanted now leaves room for what may come to be: a driver takes nothing back.
    const int modest = std::min(depth, 2);
    while (!link.moves.empty() && link.estimate.in_flight() < depth && link.carried < depth) {
      MoveIndex best = kNoMove;
      int best_hop = 0, best_chunk = kNothing;
      Bytes best_length = 0;
      std::tuple<int, Time, int> best_key;
      for (MoveIndex i : link.moves) {
        const Move& m = moves[static_cast<std::size_t>(i)];
        const int urgent = urgency(m);
        if (urgent == 2 && link.estimate.in_flight() >= modest) continue;
        const bool behind = yields(link, urgent);
        for (int h = m.route.hops; h-- > 0;) {
          if (m.route.link[static_cast<std::size_t>(h)] != static_cast<int>(l)) continue;
          if (behind && h == 0) continue;  // a later hop never yields: it frees a ring for others
          const std::tuple key{urgent, m.demand ? m.since : 0, -h};
          if (best != kNoMove && !(key < best_key)) continue;
          Bytes length = 0;
          const int chunk = next_chunk(m, h, length);
          if (chunk == kNothing) continue;
          best = i, best_hop = h, best_chunk = chunk, best_length = length, best_key = key;
        }
      }
      if (best == kNoMove) break;
      emit(best, best_hop, best_chunk, best_length);
      sent = true;
    }
  }
  return sent;
}

void Planner::State::emit(MoveIndex index, int hop, int chunk, Bytes length) {
  Move& m = moves[static_cast<std::size_t>(index)];
  if (chunk == kNewChunk) {
    m.chunks.push_back({.offset = m.issued, .length = length});
    m.issued += length;
    chunk = static_cast<int>(m.chunks.size()) - 1;
  }
  Chunk& k = m.chunks[static_cast<std::size_t>(chunk)];
  k.moving = true;
  for (int r = 0; hop == 0 && r < rings_of(m); ++r) {
    std::vector<int>& free = free_slots_behind(m, r);
    k.slot[static_cast<std::size_t>(r)] = free.back();
    free.pop_back();
  }
  const Checkpoint& c = checkpoints[m.checkpoint];
  auto place = [&](TierIndex t) -> Place {
    if (t == kNoTier) return {{Endpoint::application, kNoTier}, k.offset};
    const Bytes base = memory(t) ? c.at[static_cast<std::size_t>(t)].offset : 0;
    return {{Endpoint::tier, t}, base + k.offset};
  };
  auto behind = [&](int h) -> Place {  // in the staging ring there
    const NodeIndex node = node_behind(m, h);
    const int slots = machine.nodes[static_cast<std::size_t>(node)].staging;
    const int slot = (goes_down(m) ? 0 : slots) + k.slot[static_cast<std::size_t>(h)];
    return {{Endpoint::ring, node}, static_cast<Bytes>(slot) * machine.ring_slot};
  };
  Command command;
  command.id = next_command++;
  command.link = m.route.link[static_cast<std::size_t>(hop)];
  command.checkpoint = ref(m.checkpoint);
  command.offset = k.offset;
  command.length = k.length;
  command.total = m.total;
  if (m.ordered && hop == 0) command.after = coming_last(m, k.offset + k.length);
  k.command = command.id;
  command.from = hop == 0 ? place(m.from) : behind(hop - 1);
  command.to = hop < rings_of(m) ? behind(hop) : place(m.to);
  if (command.from.at.kind == Endpoint::application || command.to.at.kind == Endpoint::application)
    command.request = m.request;
  commands.emplace(command.id, CommandEntry{index, hop, k.offset, k.length});
  ++m.in_flight;
  ++commands_in_flight;
  ++counters.commands;
  if (!on_its_stream(m)) links[static_cast<std::size_t>(command.link)].estimate.issued(now);
  out->commands.push_back(command);
}

// Enough is queued to keep the links busy until the next event.
bool Planner::State::room_for_more(TierIndex from, TierIndex to, MoveKind kind) const {
  const Route& route = route_of(from, to);
  for (int h = 0; h < route.hops; ++h) {
    const Link& link = links[static_cast<std::size_t>(route.link[static_cast<std::size_t>(h)])];
    Bytes queued = 0;
    int count = 0;
    for (MoveIndex i : link.moves) {
      const Move& m = moves[static_cast<std::size_t>(i)];
      if (m.cancelled || m.kind != kind) continue;
      queued += m.total - m.issued;
      ++count;
    }
    if (count >= 16 || (count > 0 && queued >= static_cast<Bytes>(link.depth()) * link.spec.chunk)) return false;
  }
  return true;
}

}  // namespace ebb::policy
