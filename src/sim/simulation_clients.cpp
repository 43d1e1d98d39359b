// Executes the programs: calls, hints, barriers and waits.
#include <algorithm>
#include <stdexcept>

#include "sim/random.hpp"
#include "sim/simulation_state.hpp"

namespace ebb::sim {
namespace {

bool is_call(Op::Kind kind) {
  return kind == Op::Kind::checkpoint || kind == Op::Kind::reserve || kind == Op::Kind::restore ||
         kind == Op::Kind::borrow || kind == Op::Kind::wait;
}

}  // namespace

void Simulation::Impl::act(std::size_t index) {
  Client& client = clients[index];
  if (client.next == client.program.ops.size()) {
    client.done = true;
    makespan = std::max(makespan, now);
    return;
  }
  const Op op = client.program.ops[client.next++];  // a copy: the program may grow meanwhile
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  switch (op.kind) {
    case Op::Kind::sleep: wake(index, now + op.time); return;
    case Op::Kind::break_link:
    case Op::Kind::mend_link:
      rank.broken.at(static_cast<std::size_t>(op.link)) = op.kind == Op::Kind::break_link;
      wake(index, now);
      return;
    case Op::Kind::lend:
      lender_event(client.rank, lenders.lend(client.rank, op, rank.content));
      wake(index, now);
      return;
    case Op::Kind::limit:
      lender_event(client.rank, event::Limit{op.lender, op.share});
      wake(index, now);
      return;
    case Op::Kind::recall:
      lender_event(client.rank, lenders.recall(client.rank, op, now));
      wake(index, now);
      return;
    case Op::Kind::lose:
      lender_event(client.rank, lenders.lose({client.rank, op.tier, op.segment}, rank.content));
      wake(index, now);
      return;
    case Op::Kind::recovered:
      submit_recovered(client, op);
      wake(index, now);
      return;
    case Op::Kind::barrier: meet(client); return;
    case Op::Kind::join: join(index); return;
    case Op::Kind::commit:
    case Op::Kind::abandon:
      if (op.ordered && op.kind == Op::Kind::commit)
        hand_back(index, op, client.reserved);
      else if (const RequestId held = take(client.reserved, op, rank, op.kind == Op::Kind::commit))
        submit_event(index, op, held);
      wake(index, now);
      return;
    case Op::Kind::release:
      if (op.ordered)
        hand_back(index, op, client.borrowed);
      else if (const RequestId loan = take(client.borrowed, op, rank, false))
        submit_event(index, op, loan);
      wake(index, now);
      return;
    default: break;
  }
  if (is_call(op.kind)) {
    call(index, op);
    return;
  }
  if (op.kind == Op::Kind::drop) forget(rank, client.program.history, op);
  submit_event(index, op);
  wake(index, now);
}

void Simulation::Impl::submit_recovered(const Client& client, const Op& op) {
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  if (machine.planner.tiers.back().medium != planner::Medium::file) return;
  const std::pair name{client.program.history, op.version};
  if (const auto there = rank.planner.find(name.first, name.second)) {
    const auto before = rank.recovered.find(name);  // on another tier, just now
    const bool also = before != rank.recovered.end() && before->second.first == now &&
                      before->second.second == rank.written.at(name).serial &&
                      rank.planner.bytes_of(*there) == op.bytes && !rank.planner.complete_on(*there, found_on(op));
    if (also) give(client.rank, event_for(client, op));
    return;
  }
  rank.written[name] = {calls.new_request(), op.bytes};
  rank.recovered[name] = {now, rank.written[name].serial};
  give(client.rank, event_for(client, op));
}

TierIndex Simulation::Impl::found_on(const Op& op) const {
  const auto last = static_cast<TierIndex>(machine.planner.tiers.size() - 1);
  return op.tier != planner::kNoTier ? op.tier : std::min(last, planner::first_keeping(machine.planner));
}

void Simulation::Impl::hand_back(std::size_t index, const Op& op, std::map<Version, std::vector<RequestId>>& open) {
  Client& client = clients[index];
  Rank none(machine.planner, false);
  const RequestId loan = take(open, op, none, false);
  if (loan == 0) return;
  enqueue(client, op.kernel, event_for(client, op, loan));
  const event::Submit submit{.request = loan, .keep = op.flag, .by_stream = true};
  give(client.rank, {now, client.program.history, submit});
}

RequestId Simulation::Impl::take(std::map<Version, std::vector<RequestId>>& open, const Op& op, Rank& rank,
                                 bool commit) {
  const auto it = open.find(op.version);
  if (it == open.end()) return 0;
  const RequestId loan = it->second.back();
  it->second.pop_back();
  if (it->second.empty()) open.erase(it);
  if (rank.content) {
    if (commit)
      rank.content->commit(loan);
    else
      rank.content->give_back(loan);
  }
  return loan;
}

void Simulation::Impl::forget(Rank& rank, HistoryId history, const Op& op) {
  if (!op.flag)
    rank.written.erase({history, op.version});
  else
    std::erase_if(rank.written, [&](const auto& entry) { return entry.first.first == history; });
}

Event Simulation::Impl::event_for(const Client& client, const Op& op, RequestId request) const {
  const auto what = [&]() -> event::Any {
    switch (op.kind) {
      case Op::Kind::checkpoint: return event::Checkpoint{request, op.version, op.bytes, op.time, op.ordered};
      case Op::Kind::reserve:
        if (op.flag && op.bytes > 0)
          return event::Adopt{request, op.version, op.bytes, op.time, planner::kAdopted + (request << 32)};
        return event::Reserve{request, op.version, op.bytes, op.time};
      case Op::Kind::commit: return event::Commit{.request = request};
      case Op::Kind::abandon: return event::Abandon{request};
      case Op::Kind::restore: return event::Restore{request, op.version, op.flag, op.ordered};
      case Op::Kind::borrow: return event::Borrow{request, op.version, op.time};
      case Op::Kind::release: return event::Release{request, op.flag};
      case Op::Kind::hint: return event::Hint{op.flag, op.versions};
      case Op::Kind::hint_front: return event::HintFront{op.version};
      case Op::Kind::unhint:
        if (op.versions.empty()) return event::UnhintAll{};
        return event::Unhint{op.versions};
      case Op::Kind::start_prefetch: return event::StartPrefetch{};
      case Op::Kind::drop:
        if (op.flag) return event::DropAll{};
        return event::Drop{op.version};
      case Op::Kind::recovered: return event::Recovered{op.version, op.bytes, found_on(op)};
      case Op::Kind::wait:
        if (op.flag) return event::WaitAll{request, op.tier};
        return event::Wait{request, op.version, op.tier};
      default: throw std::logic_error("an operation without an event");
    }
  };
  return {now, client.program.history, what()};
}

void Simulation::Impl::submit_event(std::size_t index, const Op& op, RequestId loan) {
  give(clients[index].rank, event_for(clients[index], op, loan));
}

void Simulation::Impl::call(std::size_t index, const Op& op) {
  Client& client = clients[index];
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  const RequestId request = calls.new_request();
  const auto name = std::pair{client.program.history, op.version};
  Call call;
  call.rank = client.rank;
  call.client = client.index;
  call.kind = op.kind;
  call.history = client.program.history;
  call.version = op.version;
  call.bytes = op.bytes;
  call.request = request;
  call.timeout = op.time;
  call.async = op.async;
  call.begun = now;
  std::uint64_t before = 0, serial = 0;
  if (op.kind == Op::Kind::restore || op.kind == Op::Kind::borrow) {
    const auto known = rank.written.find(name);
    const Written written = known == rank.written.end() ? Written{} : known->second;
    call.bytes = written.bytes;
    serial = written.serial;
    if (rank.content && op.kind == Op::Kind::restore)
      rank.content->begin_restore(request, written.serial, written.bytes);
  } else if (op.kind == Op::Kind::checkpoint || op.kind == Op::Kind::reserve) {
    const auto known = rank.written.find(name);
    before = known == rank.written.end() ? 0 : known->second.serial;
    if (rank.content) rank.content->begin_write(request);
  }
  calls.add(std::move(call), index);
  calls.serial(request) = serial;
  if (op.async)
    ++client.open_calls;
  else
    client.blocked_on = request;
  if (op.deadline > 0) deadlines.emplace(now + op.deadline, request);
  if (op.ordered) {
    const bool restore = op.kind == Op::Kind::restore;
    ordered.emplace(request,
                    Ordered{.client = index, .restore = restore, .bytes = calls.of(request).bytes, .ahead = {}});
    enqueue(client, op.kernel, Event{.client = client.program.history, .what = event::Ready{request}});
  }
  give(client.rank, event_for(client, op, request));
  if (op.kind == Op::Kind::checkpoint || op.kind == Op::Kind::reserve) {
    const bool refused = calls.of(request).answered && calls.of(request).reason != Reason::ok;
    const auto known = rank.written.find(name);
    if (!refused && (known == rank.written.end() || known->second.serial == before))
      rank.written[name] = {request, op.bytes};
  }
  if (op.async) wake(index, now);
}

void Simulation::Impl::join(std::size_t index) {
  Client& client = clients[index];
  if (client.open_calls == 0) {
    wake(index, now);
    return;
  }
  client.joining = true;
  Call call;
  call.rank = client.rank;
  call.client = client.index;
  call.kind = Op::Kind::join;
  call.history = client.program.history;
  call.answered = true;
  call.begun = call.ended = now;
  client.join_call = calls.add_join(std::move(call));
}

void Simulation::Impl::meet(Client& client) {
  client.at_barrier = true;
  for (const Client& c : clients)
    if (c.barriers_left > 0 && !c.at_barrier) return;
  for (std::size_t c = 0; c < clients.size(); ++c) {
    if (!clients[c].at_barrier) continue;
    clients[c].at_barrier = false;
    --clients[c].barriers_left;
    wake(c, now);
  }
}

}  // namespace ebb::sim
