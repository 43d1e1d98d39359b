#include "planner/link_scheduler.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace ebb::policy {

LinkScheduler::LinkScheduler(State& state) : Part(state) {
  const std::vector<Link>& links = transfers_.links();
  for (const Link& link : links) {
    Queue& queue = queues_.emplace_back();
    for (const Link& other : links)
      if (std::ranges::any_of(link.spec.resources, [&](int r) {
            return context_.machine.resources.at(static_cast<std::size_t>(r)).urgent_first &&
                   std::ranges::find(other.spec.resources, r) != other.spec.resources.end();
          }))
        queue.rivals.push_back(static_cast<int>(&other - links.data()));
  }
}

// 0: a call waits for it; 1: what the program does now (flushes while it writes, prefetches while it reads); 2: the
// other.
int LinkScheduler::urgency(const Move& m) const {
  if (m.demand) return 0;
  // With retention, what a `wait` asks for comes behind all that was written before it.
  if (m.kind == MoveKind::flush && (m.forced || (awaited_ && context_.retains()))) return 1;
  const bool reading = table_.history_of(table_[m.checkpoint]).reading;
  return (m.kind == MoveKind::prefetch) == reading ? 1 : 2;
}

void LinkScheduler::issue(bool awaited) {
  awaited_ = awaited;
  transfers_.hold_up_none();
  const auto to_send = [](const Queue& queue) { return queue.to_send; };
  find_urgent();
  for (std::vector<int> before; issue_round();) {
    before.clear();
    std::ranges::transform(queues_, std::back_inserter(before), to_send);
    find_urgent();
    if (std::ranges::equal(queues_, before, {}, to_send)) return;  // else all that was most urgent is on its way
  }
}

void LinkScheduler::find_urgent() {
  for (std::size_t l = 0; l < queues_.size(); ++l) {
    Queue& queue = queues_[l];
    queue.to_send = queue.pending = kNone;
    if (queue.rivals.empty()) continue;
    for (MoveIndex i : transfers_.links()[l].moves) {
      const Move& m = transfers_[i];
      for (int h = 0; h < m.route.hops; ++h) {
        if (m.route[h] != static_cast<int>(l) || !transfers_.pending_on(m, h)) continue;
        // While a lender's pace holds it up, others go first.
        if (transfers_.at_pace(m, h, Transfers::kNothing, transfers_.link(m.route[h]).spec.chunk) > context_.now)
          continue;
        queue.pending = std::min(queue.pending, urgency(m));
        if (transfers_.unsent_on(m, h)) queue.to_send = std::min(queue.to_send, urgency(m));
      }
    }
  }
}

// Links that share such a resource: the less urgent wait while the more urgent have anything to send or in
// flight on any of them. But on its own link what the program does now comes right behind it, so that the device always
// has work.
bool LinkScheduler::yields(int link, int urgency) const {
  return std::ranges::any_of(queues_[static_cast<std::size_t>(link)].rivals, [&](int rival) {
    const Queue& other = queues_[static_cast<std::size_t>(rival)];
    return (rival == link && urgency == 1 ? other.to_send : other.pending) < urgency;
  });
}

// True if anything was sent.
bool LinkScheduler::issue_round() {
  bool sent = false;
  for (int l = 0; l < static_cast<int>(queues_.size()); ++l) {
    const Link& link = transfers_.link(l);
    const int depth = link.depth();
    // What is not wanted now leaves room for what may be wanted later: a driver takes nothing back.
    const int modest = depth < kTakesAll ? std::min(depth, 2) : depth;
    while (!link.moves.empty() && link.estimate.in_flight() < depth && link.carried < depth) {
      MoveIndex best = kNoMove;
      int best_hop = 0, best_chunk = Transfers::kNothing;
      Bytes best_length = 0;
      std::tuple<int, Time, int> best_key;
      for (MoveIndex i : link.moves) {
        const Move& m = transfers_[i];
        const int urgent = urgency(m);
        if (urgent == 2 && link.estimate.in_flight() >= modest) continue;
        const bool behind = yields(l, urgent);
        for (int h = m.route.hops; h-- > 0;) {
          if (m.route[h] != l) continue;
          if (behind && h == 0) continue;  // a later hop never yields: it frees a ring for others
          const std::tuple key{urgent, m.demand ? m.since : 0, -h};
          if (best != kNoMove && !(key < best_key)) continue;
          Bytes length = 0;
          const int chunk = transfers_.next_chunk(m, h, length);
          if (chunk == Transfers::kNothing) continue;
          if (const Time at = transfers_.at_pace(m, h, chunk, length); at > context_.now) {
            transfers_.hold_up(at);
            continue;
          }
          best = i, best_hop = h, best_chunk = chunk, best_length = length, best_key = key;
        }
      }
      if (best == kNoMove) break;
      transfers_.send(best, best_hop, best_chunk, best_length);
      sent = true;
    }
  }
  return sent;
}

}  // namespace ebb::policy
