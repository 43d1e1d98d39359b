// What programs do next: calls, hints, barriers, and what they wait for.
#include <algorithm>
#include <stdexcept>

#include "sim/random.hpp"
#include "sim/simulation_state.hpp"

namespace ebb::sim {
namespace {

EventKind event_of(Op::Kind kind) {
  switch (kind) {
    case Op::Kind::checkpoint: return EventKind::checkpoint;
    case Op::Kind::reserve: return EventKind::reserve;
    case Op::Kind::commit: return EventKind::commit;
    case Op::Kind::abandon: return EventKind::abandon;
    case Op::Kind::restore: return EventKind::restore;
    case Op::Kind::borrow: return EventKind::borrow;
    case Op::Kind::release: return EventKind::release;
    case Op::Kind::hint: return EventKind::hint;
    case Op::Kind::hint_front: return EventKind::hint_front;
    case Op::Kind::unhint: return EventKind::unhint;
    case Op::Kind::start_prefetch: return EventKind::start_prefetch;
    case Op::Kind::drop: return EventKind::drop;
    case Op::Kind::adopt: return EventKind::adopt;
    case Op::Kind::wait: return EventKind::wait;
    default: throw std::logic_error("an operation without an event");
  }
}

bool is_call(Op::Kind kind) {
  return kind == Op::Kind::checkpoint || kind == Op::Kind::reserve || kind == Op::Kind::restore ||
         kind == Op::Kind::borrow || kind == Op::Kind::wait;
}

}  // namespace

void Simulation::State::act(std::size_t index) {
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
    case Op::Kind::shrink: {
      Bytes& end = rank.ends.at(static_cast<std::size_t>(op.tier));
      end = std::min(end, op.bytes);
      Event e;
      e.now = now;
      e.kind = EventKind::shrink;
      e.tier = op.tier;
      e.bytes = end;
      give(client.rank, e);
      wake(index, now);
      return;
    }
    case Op::Kind::adopt:
      adopt(client, op);
      wake(index, now);
      return;
    case Op::Kind::barrier: meet(client); return;
    case Op::Kind::join: join(index); return;
    case Op::Kind::commit:
    case Op::Kind::abandon:
      if (op.ordered && op.kind == Op::Kind::commit)
        hand_back(index, op, client.reserved);
      else if (const RequestId held = take(client.reserved, op, rank, op.kind == Op::Kind::commit))
        tell(index, op, held);
      wake(index, now);
      return;
    case Op::Kind::release:
      if (op.ordered)
        hand_back(index, op, client.borrowed);
      else if (const RequestId loan = take(client.borrowed, op, rank, false))
        tell(index, op, loan);
      wake(index, now);
      return;
    default: break;
  }
  if (is_call(op.kind)) {
    call(index, op);
    return;
  }
  if (op.kind == Op::Kind::drop) forget(rank, client.program.history, op);
  tell(index, op);
  wake(index, now);
}

void Simulation::State::adopt(const Client& client, const Op& op) {
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  if (machine.planner.tiers.back().medium != policy::Medium::file) return;
  if (rank.planner.find(client.program.history, op.version)) return;
  Event e = event_for(client, op);
  e.kind = EventKind::adopt;
  rank.written[{client.program.history, op.version}] = {next_request++, op.bytes};
  give(client.rank, e);
}

void Simulation::State::hand_back(std::size_t index, const Op& op, std::map<Version, std::vector<RequestId>>& open) {
  Client& client = clients[index];
  Rank none(machine.planner, false);
  const RequestId loan = take(open, op, none, false);
  if (loan == 0) return;
  Event e = event_for(client, op);
  e.request = loan;
  enqueue(client, op.kernel, e);
  e.kind = EventKind::submit;
  e.ordered = true;
  give(client.rank, e);
}

RequestId Simulation::State::take(std::map<Version, std::vector<RequestId>>& open, const Op& op, Rank& rank,
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

void Simulation::State::forget(Rank& rank, HistoryId history, const Op& op) {
  if (!op.flag)
    rank.written.erase({history, op.version});
  else
    std::erase_if(rank.written, [&](const auto& entry) { return entry.first.first == history; });
}

Event Simulation::State::event_for(const Client& client, const Op& op) const {
  Event e;
  e.now = now;
  e.kind = event_of(op.kind);
  e.history = client.program.history;
  e.version = op.version;
  e.bytes = op.bytes;
  e.timeout = op.time;
  e.tier = op.tier;
  e.flag = op.flag;
  e.versions = op.versions;
  return e;
}

void Simulation::State::tell(std::size_t index, const Op& op, RequestId loan) {
  Event e = event_for(clients[index], op);
  e.request = loan;
  give(clients[index].rank, e);
}

void Simulation::State::call(std::size_t index, const Op& op) {
  Client& client = clients[index];
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  const RequestId request = next_request++;
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
  std::uint64_t before = 0;
  if (op.kind == Op::Kind::restore || op.kind == Op::Kind::borrow) {
    const auto known = rank.written.find(name);
    const Written written = known == rank.written.end() ? Written{} : known->second;
    call.bytes = written.bytes;
    serials[request] = written.serial;
    if (rank.content && op.kind == Op::Kind::restore)
      rank.content->begin_restore(request, written.serial, written.bytes);
  } else if (op.kind == Op::Kind::checkpoint || op.kind == Op::Kind::reserve) {
    const auto known = rank.written.find(name);
    before = known == rank.written.end() ? 0 : known->second.serial;
    if (rank.content) rank.content->begin_write(request);
  }
  const std::size_t place = calls.size();
  call_of.emplace(request, place);
  client_of.emplace(request, index);
  calls.push_back(std::move(call));
  if (op.async)
    ++client.open_calls;
  else
    client.blocked_on = request;
  if (op.deadline > 0) deadlines.emplace(now + op.deadline, request);
  Event e = event_for(client, op);
  e.request = request;
  if (op.ordered) {
    const bool restore = op.kind == Op::Kind::restore;
    ordered.emplace(request, Ordered{.client = index, .restore = restore, .bytes = calls[place].bytes, .ahead = {}});
    e.ordered = true;
    Event reached;
    reached.kind = EventKind::ready;
    reached.request = request;
    enqueue(client, op.kernel, reached);
  }
  give(client.rank, e);
  if (op.kind == Op::Kind::checkpoint || op.kind == Op::Kind::reserve) {
    const bool refused = calls[place].answered && calls[place].reason != Reason::ok;
    const auto known = rank.written.find(name);
    if (!refused && (known == rank.written.end() || known->second.serial == before))
      rank.written[name] = {request, op.bytes};
  }
  if (op.async) wake(index, now);
}

void Simulation::State::join(std::size_t index) {
  Client& client = clients[index];
  if (client.open_calls == 0) {
    wake(index, now);
    return;
  }
  client.joining = true;
  client.join_call = calls.size();
  Call call;
  call.rank = client.rank;
  call.client = client.index;
  call.kind = Op::Kind::join;
  call.history = client.program.history;
  call.answered = true;
  call.begun = call.ended = now;
  calls.push_back(std::move(call));
}

void Simulation::State::meet(Client& client) {
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
