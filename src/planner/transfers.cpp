#include "planner/transfers.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ebb::planner {
namespace {

bool passes(const Route& route, int link) {
  return std::ranges::find(route.link.begin(), route.link.begin() + route.hops, link) !=
         route.link.begin() + route.hops;
}

// Visits the links of all ways of a move, each once.
template <class Visit>
void for_each_link(const Move& m, Visit&& visit) {
  const auto is_before = [&](int link, int way, int hop) {
    for (int w = 0; w <= way; ++w)
      for (int h = 0; h < (w < way ? hops_of(m, w) : hop); ++h)
        if (route_of(m, w)[h] == link) return true;
    return false;
  };
  for (int way = 0; way < static_cast<int>(m.routes.size()); ++way)
    for (int h = 0; h < hops_of(m, way); ++h)
      if (const int l = route_of(m, way)[h]; !is_before(l, way, h)) visit(l);
}

}  // namespace

MoveIndex Transfers::begin(MoveKind kind, Slot slot, TierIndex from, TierIndex to, bool demand, Time since,
                           const Request* call) {
  MoveIndex index;
  if (free_moves_.empty()) {
    index = static_cast<MoveIndex>(moves_.size());
    moves_.emplace_back();
  } else {
    index = free_moves_.back();
    free_moves_.pop_back();
  }
  Move& m = (*this)[index];
  std::vector<Chunk> memory = std::move(m.chunks);
  memory.clear();
  Checkpoint& c = table_[slot];
  m = {.live = true,
       .kind = kind,
       .demand = demand,
       .checkpoint = slot,
       .from = from,
       .to = to,
       .reads = from,
       .routes = links_.ways(from, to),
       .total = c.bytes,
       .until = c.bytes,
       .since = since,
       .chunks = std::move(memory)};
  if (c.in_parts()) {
    if (from == c.split.on || to == c.split.on) m.until = c.split.head;
    if (to == c.split.on || (from == c.split.on && to == c.split.rest)) m.total = m.until;
    m.part = c.splitting() && c.part_on(to);
    if (m.part && to == c.split.rest) m.first = m.issued = m.done = c.split.head;
  }
  if (call != nullptr) {
    m.request = call->id;
    m.ordered = call->ordered;
    m.held = call->ordered && !call->ready && hops_of(m, 0) > 1;
    held_ += m.held ? 1 : 0;
  }
  if (to != kNoTier) c.at[to].filler = index;
  if (from != kNoTier) ++c.at[from].uses;
  for_each_link(m, [&](int l) { links_[l].moves.push_back(index); });
  c.moves.push_back(index);
  ++live_;
  return index;
}

void Transfers::turn(MoveIndex index) {
  Move& m = (*this)[index];
  for_each_link(m, [&](int l) { std::erase(links_[l].moves, index); });
  m.reads = table_[m.checkpoint].split.rest;
  m.routes = links_.ways(m.reads, m.to);
  m.until = m.total;
  for_each_link(m, [&](int l) { links_[l].moves.push_back(index); });
  context_.dirty = true;
}

void Transfers::make_demand(MoveIndex index, Time since) {
  Move& m = (*this)[index];
  if (m.demand && m.since <= since) return;
  m.since = m.demand ? std::min(m.since, since) : since;
  m.demand = true;
  if (m.from == kNoTier) return;
  const MoveIndex upstream = table_[m.checkpoint].at[m.from].filler;
  if (upstream != kNoMove) make_demand(upstream, since);
}

void Transfers::unhold(Move& m) {
  if (!std::exchange(m.held, false)) return;
  --held_;
  context_.dirty = true;
}

bool Transfers::cancel(MoveIndex index) {
  Move& m = (*this)[index];
  if (m.cancelled) return false;
  m.cancelled = true;
  undelay(m);  // the driver withdraws it: its commands end soon
  unhold(m);
  context_.dirty = true;
  std::erase_if(m.chunks, [&](Chunk& k) {
    if (!k.moving) return_slots(m, k);
    return !k.moving;
  });
  return m.in_flight == 0;
}

void Transfers::end(MoveIndex index) {
  Move& m = (*this)[index];
  Checkpoint& c = table_[m.checkpoint];
  for_each_link(m, [&](int l) { std::erase(links_[l].moves, index); });
  std::erase(c.moves, index);
  if (m.to != kNoTier) c.at[m.to].filler = kNoMove;
  m.live = false;
  --live_;
  free_moves_.push_back(index);
  context_.dirty = true;
}

// Whether every command that writes the move's target has been given.
bool Transfers::all_out(const Move& m) const {
  if (m.issued < m.total) return false;
  return std::all_of(m.chunks.begin(), m.chunks.end(),
                     [&](const Chunk& k) { return arrived(m, k) || (k.moving && k.hop == hops_of(m, k.way) - 1); });
}

// --- links ----------------------------------------------------------------------------------------------------------

// The time that the rest of the move takes, at least 1.
Time Transfers::time_left(const Move& m) const {
  return std::max<Time>(1, links_.time(m.from, m.to, m.total - m.done));
}

// False: enough is queued to keep the links busy until the next event. Moves that may take a link as a detour do not
// count: they are queued for their own.
bool Transfers::room_for_more(TierIndex from, TierIndex to, MoveKind kind) const {
  const Route& route = links_.route(from, to);
  for (int h = 0; h < route.hops; ++h) {
    const Link& one = links_[route[h]];
    Bytes queued = 0;
    int count = 0;
    for (MoveIndex i : one.moves) {
      const Move& m = (*this)[i];
      if (m.cancelled || m.kind != kind || !passes(m.routes.front(), route[h])) continue;
      queued += m.total - m.issued;
      ++count;
    }
    if (count >= std::max(16, one.depth()) || (count > 0 && queued >= static_cast<Bytes>(one.depth()) * one.spec.chunk))
      return false;
  }
  return true;
}

bool Transfers::carries(TierIndex from, TierIndex to) const {
  return std::ranges::any_of(links_[links_.route(from, to)[0]].moves, [&](MoveIndex i) {
    const Move& m = (*this)[i];
    return m.kind == MoveKind::flush && m.from == from && m.to == to && !m.cancelled;
  });
}

Bytes Transfers::left(TierIndex from, TierIndex to) const {
  Bytes left = 0;
  for (const MoveIndex i : links_[links_.route(from, to)[0]].moves) {
    const Move& m = (*this)[i];
    if (m.kind == MoveKind::flush && m.from == from && m.to == to && !m.cancelled) left += m.total - m.done;
  }
  return left;
}

// --- staging rings --------------------------------------------------------------------------------------------------

void Transfers::return_slot(const Move& m, Chunk& k, int hop) {
  int& slot = k.slot[static_cast<std::size_t>(hop)];
  if (slot >= 0) rings_.give_back(node_behind(m, {k.way, hop}), goes_down(m), slot);
  slot = -1;
}

void Transfers::return_slots(const Move& m, Chunk& k) {
  for (int r = 0; r < rings_of(m, k.way); ++r) return_slot(m, k, r);
}

void Transfers::go_straight(const Move& m, Chunk& k) {
  return_slots(m, k);
  k.way = k.hop = 0;
  k.moving = false;
}

bool Transfers::in_lost_ring(const Move& m, const Chunk& k) const {
  return k.way > 0 && k.slot[0] >= 0 && rings_.lost(node_behind(m, {k.way, 0}), StagingRings::ring_of(k.slot[0]));
}

void Transfers::leave_lost_rings() {
  for (Move& m : moves_) {
    if (!m.live) continue;
    for (Chunk& k : m.chunks)
      if (!k.moving && !arrived(m, k) && in_lost_ring(m, k)) go_straight(m, k);
  }
}

// --- chunks and commands --------------------------------------------------------------------------------------------

// Whether others can be ordered behind its copies on the device: those of a calling thread and of files are on no
// stream, and those between lent memory and the host may be on streams of the lender's device.
bool Transfers::on_streams(const Move& m) const {
  if (hops_of(m, 0) != 1) return false;
  if (m.from == kNoTier) return m.ordered;
  const auto by_lender = [&](TierIndex lent, TierIndex host) {
    return context_.memory(lent) && context_.tier(host).node == kHost && space_.relays(table_[m.checkpoint], lent);
  };
  return context_.memory(m.reads) && (m.to == kNoTier || !(by_lender(m.reads, m.to) || by_lender(m.to, m.reads)));
}

// Up to where the bytes that a move reads can be had. A copy in stream order, which the device can make wait for
// another, also has those for which the last copy has been ordered.
Bytes Transfers::readable(const Move& m) const {
  if (m.from == kNoTier || m.reads != m.from) return m.total;
  const Replica& source = table_[m.checkpoint].at[m.from];
  if (!m.ordered || hops_of(m, 0) != 1 || source.filler == kNoMove) return source.watermark;
  const Move& filler = (*this)[source.filler];
  Bytes ready = source.watermark;
  if (!on_streams(filler) || filler.cancelled) return ready;  // of what is cancelled, chunks are missing
  for (const Chunk& k : filler.chunks) {
    if (!arrived(filler, k) && (!k.moving || k.way != 0)) break;
    ready = k.offset + k.length;
  }
  return ready;
}

// The command that brings the last of the bytes before `end` to where `m` reads them; 0: they are there.
CommandId Transfers::coming_last(const Move& m, Bytes end) const {
  if (m.from == kNoTier || m.reads != m.from) return 0;
  const Replica& source = table_[m.checkpoint].at[m.from];
  if (source.watermark >= end) return 0;
  CommandId last = 0;
  for (const Chunk& k : (*this)[source.filler].chunks)
    if (k.offset < end && k.moving) last = std::max(last, k.command);  // one may have been sent again
  return last;
}

// Whether anything could be sent, were there a slot of the ring for it.
bool Transfers::unsent_on(const Move& m, Hop at) const {
  if (m.cancelled || m.held || stopped(m)) return false;
  if (at.hop == 0 && at.way == 0 && m.issued < m.until && readable(m) > m.issued) return true;
  return std::ranges::any_of(m.chunks, [&](const Chunk& k) { return k.way == at.way && k.hop == at.hop && !k.moving; });
}

bool Transfers::pending_on(const Move& m, Hop at) const {
  if (unsent_on(m, at)) return true;
  if (m.cancelled || m.held || stopped(m)) return false;
  return std::ranges::any_of(m.chunks, [&](const Chunk& k) { return k.way == at.way && k.hop == at.hop; });
}

// A chunk waits in the ring for its lender's pace: not for longer than the direct route takes for all that is left.
bool Transfers::too_slow(const Move& m, Hop at, int ring) const {
  const NodeIndex node = node_behind(m, at);
  const Pacer* const pacer = pacers_.of(rings_.paced_by(node, ring));
  const LinkSpec& in = links_[route_of(m, at.way)[at.hop]].spec;
  return pacer != nullptr && pacer->cost(in.bytes_per_s, rings_.slot_bytes(node)) > time_left(m);
}

// Whether the lender's link to the host has anything to carry between the host and what it lent.
bool Transfers::busy_itself(const Move& m, Hop at, int ring) const {
  const PartyId lender = rings_.lender(node_behind(m, at), ring);
  for (int h = 0; h < route_of(m, at.way).hops; ++h) {
    const int over = route_of(m, at.way)[h];
    if (links_[over].between_lent_and_host && std::ranges::any_of(links_[over].moves, [&](MoveIndex i) {
          const Move& own = (*this)[i];
          return !own.cancelled && own.issued < own.until && passes(own.routes.front(), over) &&
                 copied_by(own, {}, kNewChunk) == lender;
        }))
      return true;
  }
  return false;
}

// The ring behind the hop that a new chunk takes: the one whose lender's pace lets it through first, and of those the
// one with the most free slots. -1: none.
int Transfers::ring_for(const Move& m, Hop at) const {
  const NodeIndex node = node_behind(m, at);
  if (rings_.count(node) == 1 && at.way == 0) return rings_.free(node, 0, goes_down(m)) > 0 ? 0 : -1;
  int best = -1, best_free = 0;
  Time best_ready = 0;
  for (int ring = 0; ring < rings_.count(node); ++ring) {
    const int free = rings_.free(node, ring, goes_down(m));
    if (free == 0 || too_slow(m, at, ring) || busy_itself(m, at, ring)) continue;
    const Pacer* const pacer = pacers_.of(rings_.paced_by(node, ring));
    const LinkSpec& in = links_[route_of(m, at.way)[at.hop]].spec;
    const Time ready =
        pacer == nullptr
            ? 0
            : std::max<Time>(0, pacer->ready(pacer->cost(in.bytes_per_s, rings_.slot_bytes(node))) - context_.now);
    if (best >= 0 && std::pair(ready, -free) >= std::pair(best_ready, -best_free)) continue;
    best = ring, best_free = free, best_ready = ready;
  }
  return best;
}

// Whether the next chunk is for the move's own link. One that would wait there for another goes through an empty ring,
// whose lender's link to the host begins at once.
bool Transfers::goes_straight(const Move& m, Hop at) const {
  const Link& own = links_[route_of(m, 0)[0]];
  const int queued = own.estimate.in_flight();
  return queued == 0 || (queued < own.depth() && !finds_empty_ring(m, at));
}

bool Transfers::finds_empty_ring(const Move& m, Hop at) const {
  const NodeIndex node = node_behind(m, at);
  const int ring = goes_down(m) ? ring_for(m, at) : -1;
  return ring >= 0 && rings_.lender(node, ring) != 0 && rings_.empty(node, ring, true);
}

PartyId Transfers::copied_by(const Move& m, Hop at, int chunk) const {
  if (at.way == 0) {
    const Checkpoint& c = table_[m.checkpoint];
    for (const TierIndex t : {m.reads, m.to})
      if (t != kNoTier && context_.memory(t) && space_.relays(c, t)) return space_.lender_of(c, t);
    return 0;
  }
  const NodeIndex node = node_behind(m, {at.way, 0});
  const int ring = chunk >= 0 && m.chunks[static_cast<std::size_t>(chunk)].slot[0] >= 0
                       ? StagingRings::ring_of(m.chunks[static_cast<std::size_t>(chunk)].slot[0])
                       : ring_for(m, {at.way, 0});
  return ring < 0 ? 0 : rings_.lender(node, ring);
}

// The most bytes of a chunk. Where others lend staging rings, what goes from memory to memory has several ways, or
// shares a link with what has: it goes in two pieces for each way, so that none is left with much when the others end.
Bytes Transfers::piece(const Move& m) const {
  constexpr Bytes kShortest = 4;  // shorter ones than a quarter of a chunk are slower
  const auto ways = static_cast<Bytes>(rings_.lent() + 1);
  if (ways == 1 || m.from == kNoTier || m.to == kNoTier) return m.total;
  if (!context_.memory(m.reads) || !context_.memory(m.to)) return m.total;
  const Bytes chunk = links_[m.routes.front()[0]].spec.chunk, step = chunk / kShortest;
  if (step == 0 || step % context_.tier(m.reads).granule != 0 || step % context_.tier(m.to).granule != 0) return chunk;
  return std::clamp((m.total - m.first) / (2 * ways) / step * step, step, chunk);
}

int Transfers::next_chunk(const Move& m, Hop at, Bytes& length) const {
  if (m.cancelled || m.held || stopped(m)) return kNothing;
  const auto [way, hop] = at;
  if (way > 0 && hop == 0 && (m.ordered || goes_straight(m, at))) return kNothing;
  // A chunk takes a slot of every ring on its way before it begins, so that none waits for another's on the way. The
  // last slots are for calls that block, and half of them for what is not on its way to or from a lower file, which may
  // hang.
  const bool lower = context_.lower(m.from) || context_.lower(m.to);
  for (int r = 0; hop == 0 && r < rings_of(m, way); ++r) {
    const NodeIndex node = node_behind(m, {way, r});
    const int slots = rings_.slots(node), free = rings_.free(node, goes_down(m));
    if (free <= (lower ? slots / 2 : m.demand ? 0 : std::min(2, slots / 4))) return kNothing;
    if (way > 0 && ring_for(m, {way, r}) < 0) return kNothing;
  }
  for (std::size_t i = 0; i < m.chunks.size(); ++i)
    if (m.chunks[i].way == way && m.chunks[i].hop == hop && !m.chunks[i].moving) {
      length = m.chunks[i].length;
      return static_cast<int>(i);
    }
  if (hop != 0 || m.issued >= m.until) return kNothing;
  const Bytes ready = std::min(m.until, readable(m));
  if (ready <= m.issued) return kNothing;
  Bytes most = ready - m.issued;
  const Route& route = route_of(m, way);
  for (int h = 0; h < hops_of(m, way); ++h) most = std::min(most, links_[route[h]].spec.chunk);
  for (int r = 0; r < rings_of(m, way); ++r) most = std::min(most, rings_.slot_bytes(node_behind(m, {way, r})));
  length = std::min(most, piece(m));
  return kNewChunk;
}

// Of the memory that the hop reads and that it writes. Within that of one lender it counts once.
std::array<Pacer*, 2> Transfers::pacers_of(const Move& m, Hop at, int chunk) {
  const Checkpoint& c = table_[m.checkpoint];
  const auto of_ring = [&](int hop) -> Pacer* {
    const int slot = chunk < 0 ? -1 : m.chunks[static_cast<std::size_t>(chunk)].slot[static_cast<std::size_t>(hop)];
    const int ring = slot < 0 ? ring_for(m, {at.way, hop}) : StagingRings::ring_of(slot);
    return ring < 0 ? nullptr : pacers_.of(rings_.paced_by(node_behind(m, {at.way, hop}), ring));
  };
  Pacer* const read = at.hop == 0 ? pacers_.of(c, m.reads) : of_ring(at.hop - 1);
  Pacer* const written = at.hop == rings_of(m, at.way) ? pacers_.of(c, m.to) : of_ring(at.hop);
  return {read, written == read ? nullptr : written};
}

Time Transfers::at_pace(const Move& m, Hop at, int chunk, Bytes length) {
  Time ready = context_.now;
  const Link& over = links_[route_of(m, at.way)[at.hop]];
  for (Pacer* const pacer : pacers_of(m, at, chunk))
    if (pacer != nullptr) ready = std::max(ready, pacer->ready(pacer->cost(over.spec.bytes_per_s, length)));
  if (over.pacer) ready = std::max(ready, over.pacer->ready(over.pacer->cost(over.spec.most_bytes_per_s, length)));
  // What waits in a ring for its lender's pace keeps others out of it: of each move, no more than two chunks.
  const bool begins =
      chunk == kNewChunk && rings_of(m, at.way) > 0 && pacers_.of(table_[m.checkpoint], m.to) != nullptr;
  const auto on_its_way = [&](const Chunk& k) { return !arrived(m, k); };
  if (begins && std::ranges::count_if(m.chunks, on_its_way) >= 2) ready = kNever;
  return ready;
}

void Transfers::hold_up(Time until) {
  if (until == kNever) return;  // the end of another chunk of its
  paced_ = true;
  context_.wake_by(until);
}

bool Transfers::send(MoveIndex index, Hop at, int chunk, Bytes length) {
  const auto [way, hop] = at;
  Move& m = (*this)[index];
  const int over = route_of(m, way)[hop];
  if (chunk == kNewChunk) {
    m.chunks.push_back({.offset = m.issued, .length = length, .way = way});
    context_.counters.relayed += way > 0 ? 1 : 0;
    m.issued += length;
    chunk = static_cast<int>(m.chunks.size()) - 1;
  }
  Chunk& k = m.chunks[static_cast<std::size_t>(chunk)];
  const int rings = rings_of(m, way);
  for (int r = 0; hop == 0 && r < rings; ++r) {
    const NodeIndex node = node_behind(m, {way, r});
    k.slot[static_cast<std::size_t>(r)] = rings_.take(node, ring_for(m, {way, r}), goes_down(m));
  }
  k.moving = true;
  const PartyId by = links_[over].between_lent_and_host ? copied_by(m, at, chunk) : 0;
  for (Pacer* const pacer : pacers_of(m, at, chunk))
    if (pacer != nullptr) pacer->give(context_.now, pacer->cost(links_[over].spec.bytes_per_s, length));
  if (auto& pacer = links_[over].pacer; pacer)
    pacer->give(context_.now, pacer->cost(links_[over].spec.most_bytes_per_s, length));
  const Checkpoint& c = table_[m.checkpoint];
  const auto place = [&](TierIndex t) -> Place {
    if (t == kNoTier) return {{Endpoint::application, kNoTier}, k.offset};
    const Bytes base = context_.memory(t) ? c.at[t].offset : 0;
    return {{Endpoint::tier, t}, base + k.offset};
  };
  const auto behind = [&](int h) {  // in the staging ring there
    return rings_.place(node_behind(m, {way, h}), goes_down(m), k.slot[static_cast<std::size_t>(h)]);
  };
  const Place from = hop == 0 ? place(m.reads) : behind(hop - 1), to = hop < rings ? behind(hop) : place(m.to);
  const bool of_call = from.at.kind == Endpoint::application || to.at.kind == Endpoint::application;
  const CommandId after = m.ordered && hop == 0 ? coming_last(m, k.offset + k.length) : 0;
  k.command = next_command_++;
  commands_.emplace(k.command, Sent{index, over, hop == 0, hop == hops_of(m, way) - 1, k.offset, k.length, by});
  if (links_[over].between_lent_and_host) links_[over].count(by, 1);
  undelay(m);
  ++m.in_flight;
  ++in_flight_;
  ++context_.counters.commands;
  if (!on_its_stream(m)) links_[over].estimate.issued(context_.now);
  context_.out->commands.push_back({.id = k.command,
                                    .link = over,
                                    .checkpoint = table_.ref(m.checkpoint),
                                    .request = of_call ? m.request : 0,
                                    .offset = k.offset,
                                    .length = k.length,
                                    .total = m.total,
                                    .from = from,
                                    .to = to,
                                    .after = after});
  // On the application's stream the rest comes behind the first bytes, which need not be there: the call waits until
  // all is enqueued. Other copies turn when all that was before is there.
  const bool turns = on_its_stream(m) && m.issued == m.until && m.until < m.total;
  if (turns) turn(index);
  return turns;
}

// Counts a move, all of which was sent, as delayed. One to a file below another may have more to send, which waits
// until that file has ended a command of it.
void Transfers::delay(MoveIndex index) {
  Move& m = (*this)[index];
  if (context_.lower(m.to) ? m.in_flight == 0 : m.issued < m.total) return;
  if (std::exchange(m.delayed, true)) return;
  delayed_ += m.in_flight;
}

void Transfers::undelay(Move& m) {
  if (std::exchange(m.delayed, false)) delayed_ -= m.in_flight;
}

// Lets the link go on while the bytes that it carried are checked.
void Transfers::carried(CommandId command) {
  const auto it = commands_.find(command);
  if (it == commands_.end() || it->second.carried)
    throw std::logic_error("a command was reported twice, or never given");
  const Move& m = (*this)[it->second.move];
  if (on_its_stream(m)) throw std::logic_error("a copy on the application's stream is over when that says so");
  Link& on = links_[it->second.link];
  it->second.carried = true;
  on.heard = context_.now;
  on.estimate.finished(context_.now, it->second.length);
  ++on.carried;
  context_.dirty |= room_for_more(m.from, m.to, m.kind);  // the link runs dry: time to plan more for it
}

Transfers::Sent Transfers::ended(CommandId command, bool failed) {
  const auto it = commands_.find(command);
  if (it == commands_.end()) throw std::logic_error("a command was reported twice, or never given");
  const Sent sent = it->second;
  commands_.erase(it);
  --in_flight_;
  Move& m = (*this)[sent.move];
  delayed_ -= m.delayed ? 1 : 0;
  Link& on = links_[sent.link];
  on.heard = context_.now;
  if (on.between_lent_and_host) on.count(sent.copied_by, -1);
  if (sent.carried)
    --on.carried;
  else if (!on_its_stream(m))
    failed ? on.estimate.failed(context_.now) : on.estimate.finished(context_.now, sent.length);
  if (failed) {
    ++on.use.failures;
  } else {
    on.use.bytes += sent.length;
    ++on.use.transfers;
  }
  --m.in_flight;
  if (context_.lower(m.to) && sent.last) undelay(m);  // that file goes on
  return sent;
}

Chunk& Transfers::chunk_of(Move& m, Bytes offset) { return *std::ranges::find(m.chunks, offset, &Chunk::offset); }

// Forgets a chunk that has arrived, or never will.
void Transfers::remove_chunk(Move& m, Bytes offset) {
  const auto chunk = std::ranges::find(m.chunks, offset, &Chunk::offset);
  return_slots(m, *chunk);
  m.chunks.erase(chunk);
}

}  // namespace ebb::planner
