#include "planner/link_scheduler.hpp"

#include <algorithm>
#include <tuple>

namespace ebb::planner {
namespace {

// Visits the hops of all ways of a move that are over the link, the last of each way first.
template <class Visit>
void for_each_hop(const Move& m, int link, Visit&& visit) {
  for (int way = 0; way < static_cast<int>(m.routes.size()); ++way)
    for (int hop = hops_of(m, way); hop-- > 0;)
      if (route_of(m, way)[hop] == link) visit(Transfers::Hop{way, hop});
}

}  // namespace

LinkScheduler::LinkScheduler(State& state) : Decider(state) {
  const std::vector<Link>& links = links_.all();
  for (const Link& link : links) {
    Queue& queue = queues_.emplace_back();
    for (TierIndex t = context_.first_keeping + 1; t < context_.tiers(); ++t)
      queue.down |= context_.tier(t).node == link.spec.to;
    for (const Link& other : links)
      if (std::ranges::any_of(link.spec.resources, [&](int r) {
            return context_.machine.resources.at(static_cast<std::size_t>(r)).urgent_first &&
                   std::ranges::find(other.spec.resources, r) != other.spec.resources.end();
          }))
        queue.rivals.push_back(static_cast<int>(&other - links.data()));
  }
}

// 0: a call waits for the move; 1: it serves what the program does now (flushes while it writes, prefetches while it
// reads); 2: any other.
int LinkScheduler::urgency(const Move& m) const {
  if (m.demand) return 0;
  // With retention, what a `wait` asks for comes behind all that was written before it.
  const bool awaited = awaited_ != kNoTier && context_.counts_files() && !(context_.lower(m.to) && m.to > awaited_);
  if (m.kind == MoveKind::flush && (m.forced || awaited)) return 1;
  if (m.kind == MoveKind::flush && context_.lower(m.to)) return 2;
  const bool reading = table_.history_of(table_[m.checkpoint]).reading;
  return (m.kind == MoveKind::prefetch) == reading ? 1 : 2;
}

void LinkScheduler::issue(TierIndex awaited) {
  awaited_ = awaited;
  transfers_.hold_up_none();
  if (transfers_.count() == 0) return;
  find_urgent();
  for (Round round = issue_round(); round != Round::nothing; round = issue_round())
    if (!find_urgent() && round != Round::turned) return;  // all that was most urgent is on its way
}

// True if what is most urgent to send has changed.
bool LinkScheduler::find_urgent() {
  bool changed = false;
  for (std::size_t l = 0; l < queues_.size(); ++l) {
    Queue& queue = queues_[l];
    const int before = queue.to_send;
    queue.to_send = queue.pending = kNone;
    if (queue.rivals.empty()) continue;
    for (MoveIndex i : links_.all()[l].moves) {
      const Move& m = transfers_[i];
      for_each_hop(m, static_cast<int>(l), [&](Transfers::Hop at) {
        if (!transfers_.pending_on(m, at)) return;
        // A move that a lender's pace holds up does not count: others go first.
        const Bytes chunk = links_[static_cast<int>(l)].spec.chunk;
        if (transfers_.at_pace(m, at, Transfers::kNothing, chunk) > context_.now) return;
        queue.pending = std::min(queue.pending, urgency(m));
        if (transfers_.unsent_on(m, at)) queue.to_send = std::min(queue.to_send, urgency(m));
      });
    }
    changed |= queue.to_send != before;
  }
  return changed;
}

// On links that share such a resource the less urgent moves wait while more urgent ones have anything to send or in
// flight on any of them. But on its own link a move of urgency 1 comes right behind those, so that the device always
// has work.
bool LinkScheduler::yields(int link, int urgency) const {
  return std::ranges::any_of(queues_[static_cast<std::size_t>(link)].rivals, [&](int rival) {
    const Queue& other = queues_[static_cast<std::size_t>(rival)];
    return (rival == link && urgency == 1 ? other.to_send : other.pending) < urgency;
  });
}

// Of what goes on down from a file, one chunk at a time does not yield: while a program writes without a pause, nothing
// would be sent.
bool LinkScheduler::none_goes_down(const Link& link) const {
  return std::ranges::none_of(link.moves, [&](MoveIndex i) {
    const Move& m = transfers_[i];
    return context_.lower(m.to) && std::ranges::any_of(m.chunks, [](const Chunk& k) { return k.hop == 0 && k.moving; });
  });
}

// Whether an empty ring is to have the next chunk, which its own link would queue behind another.
bool LinkScheduler::rather_relayed(const Move& m, const Link& own) {
  constexpr Transfers::Hop kInto{1, 0};
  const Link& into = links_[route_of(m, kInto.way)[0]];
  if (own.estimate.in_flight() == 0 || into.estimate.in_flight() >= into.depth()) return false;
  Bytes length = 0;
  const int chunk = transfers_.next_chunk(m, kInto, length);
  return chunk != Transfers::kNothing && transfers_.at_pace(m, kInto, chunk, length) <= context_.now;
}

LinkScheduler::Round LinkScheduler::issue_round() {
  Round round = Round::nothing;
  for (int l = 0; l < static_cast<int>(queues_.size()); ++l) {
    const Link& link = links_[l];
    const int depth = link.depth();
    // Moves of urgency 2 leave room on the link for others that may come: a driver takes no command back.
    const bool all = depth >= kTakesAll || queues_[static_cast<std::size_t>(l)].down;
    const int modest = all ? depth : std::min(depth, 2);
    const bool by_lender = link.between_lent_and_host;
    while (!link.moves.empty() && (by_lender || link.estimate.in_flight() < depth) && link.carried < depth) {
      MoveIndex best = kNoMove;
      Transfers::Hop best_hop;
      int best_chunk = Transfers::kNothing;
      Bytes best_length = 0;
      std::tuple<int, Time, int, bool> best_key;
      for (MoveIndex i : link.moves) {
        const Move& m = transfers_[i];
        const int urgent = urgency(m);
        if (!by_lender && urgent == 2 && link.estimate.in_flight() >= modest) continue;
        const bool behind = yields(l, urgent) && !(context_.lower(m.to) && none_goes_down(link));
        for_each_hop(m, l, [&](Transfers::Hop at) {
          // A ring is filled before other memory is: its lender's link to the host waits for it. One that is empty is
          // filled whoever waits for other memory, since that link takes far longer.
          const bool fills_ring = at.way > 0 && at.hop == 0 && urgent == 1 && transfers_.finds_empty_ring(m, at);
          if (behind && at.hop == 0 && !fills_ring) return;  // a later hop never yields: it frees a ring for others
          const std::tuple key{fills_ring ? 0 : urgent, m.demand ? m.since : 0, -at.hop, at.way == 0};
          if (best != kNoMove && !(key < best_key)) return;
          if (at.way == 0 && m.routes.size() > 1 && rather_relayed(m, link)) return;
          Bytes length = 0;
          const int chunk = transfers_.next_chunk(m, at, length);
          if (chunk == Transfers::kNothing) return;
          if (by_lender && link.in_flight_of(transfers_.copied_by(m, at, chunk)) >= (urgent == 2 ? modest : depth))
            return;
          if (const Time ready = transfers_.at_pace(m, at, chunk, length); ready > context_.now)
            return transfers_.hold_up(ready);
          best = i, best_hop = at, best_chunk = chunk, best_length = length, best_key = key;
        });
      }
      if (best == kNoMove) break;
      round = std::max(round, transfers_.send(best, best_hop, best_chunk, best_length) ? Round::turned : Round::sent);
    }
  }
  return round;
}

}  // namespace ebb::planner
