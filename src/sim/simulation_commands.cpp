// Executes the planner's commands on links and streams, and reports their results.
#include <algorithm>
#include <stdexcept>

#include "sim/random.hpp"
#include "sim/simulation_state.hpp"

namespace ebb::sim {

void Simulation::Impl::give(int r, const Event& event) {
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  ++events;
  if (options.max_events && events > options.max_events)
    throw std::logic_error("the run takes more than " + std::to_string(options.max_events) + " events");
  scratch.clear();
  if (self->feed)
    self->feed(rank.planner, event, scratch);
  else
    rank.planner.on(event, scratch);
  const Output out = std::move(scratch);
  scratch = Output{};
  rank.wakeup = out.wakeup;
  const auto* const recovered = std::get_if<event::Recovered>(&event.what);
  if (rank.content && recovered != nullptr)  // the resulting commands may read it at once
    rank.content->add_recovered(*rank.planner.find(event.client, recovered->version), recovered->tier, recovered->bytes,
                                rank.written.at({event.client, recovered->version}).serial);
  if (rank.content)
    for (const planner::Freed& f : out.freed) rank.content->freed(f);
  for (const planner::Freed& f : out.freed) syncing.freed(r, f, now);
  for (const planner::Retired& one : out.retired) rank.written.erase({one.history, one.version});
  if (const auto version = version_of(event)) {
    if (const auto found = rank.planner.find(event.client, *version))
      rank.names[{found->slot, found->generation}] = {event.client, *version};
    syncing.named(r, rank.planner, event.client, *version, recovered != nullptr, now);
  }
  if (const auto* commit = std::get_if<event::Commit>(&event.what))
    provisioning.produced(r, calls.of(commit->request).bytes, now);
  for (const planner::Returned& one : out.returned) lenders.returned(r, one, rank.content);
  if (out.commit != 0) syncing.commit_requested(r, out.commit, now);
  for (const Command& c : out.commands) begin(r, c);
  for (const RequestId id : out.spoiled)
    if (const auto it = ordered.find(id); it != ordered.end()) it->second.spoiled = true;
  for (const Answer& a : out.answers) answered(r, a);
  for (const planner::Failure& f : out.failures) rank.result.failures.push_back(f);
  if (options.check_every && events % static_cast<std::uint64_t>(options.check_every) == 0) rank.planner.check();
  if (self->observer) self->observer(r, event, out);
  if (options.record) rank.result.steps.push_back({event, out});
}

std::optional<Version> Simulation::Impl::version_of(const Event& e) const {
  if (const auto* checkpoint = std::get_if<event::Checkpoint>(&e.what)) return checkpoint->version;
  if (const auto* reserve = std::get_if<event::Reserve>(&e.what)) return reserve->version;
  if (const auto* adopt = std::get_if<event::Adopt>(&e.what)) return adopt->version;
  if (const auto* commit = std::get_if<event::Commit>(&e.what)) return calls.of(commit->request).version;
  if (const auto* recovered = std::get_if<event::Recovered>(&e.what)) return recovered->version;
  return {};
}

void Simulation::Impl::lender_event(int r, std::optional<event::Any> what) {
  if (what) give(r, {.now = now, .what = *std::move(what)});
}

bool Simulation::Impl::touches_application(const Command& c) {
  return c.from.at.kind == Endpoint::application || c.to.at.kind == Endpoint::application;
}

void Simulation::Impl::begin(int r, const Command& c) {
  if (lenders.beyond(r, c.to, c.length)) throw std::logic_error("a command writes where memory has ended");
  const Lenders::LentSegment* const from = lenders.find(r, c.from);
  if (from != nullptr && (from->lost || (from->returned && lenders.beyond(r, c.from, c.length))))
    throw std::logic_error("a command reads memory that was given back, or lost");
  if (touches_application(c)) {
    if (!calls.knows(c.request) || calls.of(c.request).answered)
      throw std::logic_error("a command uses the memory of call " + std::to_string(c.request) + ", which is over");
    calls.begin_copy(c.request);
  }
  in_flight.insert({r, c.id});
  if (!provisioning.hold({.rank = r, .command = c, .bytes = c.length}, now)) carry_out(r, c);
}

bool Simulation::Impl::release_one() {
  const auto held = provisioning.release(now);
  if (!held) return false;
  if (!held->command)
    answer_call(held->rank, held->answer);
  else if (lenders.lost(held->rank, *held->command))
    report({held->rank, *held->command}, false, true);
  else
    carry_out(held->rank, *held->command);
  return true;
}

void Simulation::Impl::carry_out(int r, const Command& c) {
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  if (!provisioning.usable(r, c.to, c.length)) throw std::logic_error("a command writes into memory that is not ready");
  if (const auto it = ordered.find(c.request); touches_application(c) && it != ordered.end()) {
    if (it->second.returned) throw std::logic_error("a copy was ordered for a call that has returned");
    if (c.offset < it->second.ordered_to) {  // again, from another place
      it->second.enqueued = std::min(it->second.enqueued, c.offset);
      it->second.ahead.clear();
    }
    it->second.ordered_to = c.offset + c.length;
    if (c.from.at.kind != Endpoint::ring && c.to.at.kind != Endpoint::ring) return enqueue(rank, it->second, c);
  }
  if (c.after != 0) throw std::logic_error("only an enqueued command can come after another");
  if (rank.content) rank.content->start(c);
  const std::uint64_t id = next_moving++;
  moving.emplace(id, Moving{r, c});
  const int link = link_of(r, c.link, lenders.copied_by(r, c));
  if (network.queued(link) >=
      static_cast<std::size_t>(machine.planner.links.at(static_cast<std::size_t>(c.link)).depth))
    throw std::logic_error("more commands at once than link " +
                           machine.planner.links[static_cast<std::size_t>(c.link)].name + " may hold");
  network.submit(link, id, c.length, now);
}

void Simulation::Impl::enqueue(Rank& rank, Ordered& call, const Command& c) {
  Client& client = clients[call.client];
  if (c.after != 0) awaited.insert({client.rank, c.after});
  Item item;
  const LinkModel& link = machine.links[static_cast<std::size_t>(c.link)];
  item.busy = 1 + static_cast<Time>(c.length * 1'000'000'000 / link.bytes_per_s);
  item.command = c;
  item.content = c.after == 0;
  if (item.content && rank.content) rank.content->start(c);
  call.count(c);
  client.stream.push_back(std::move(item));
}

void Simulation::Impl::enqueue(Client& client, Time busy, std::optional<Event> event) {
  Item item;
  item.busy = busy;
  item.event = std::move(event);
  client.stream.push_back(std::move(item));
}

void Simulation::Impl::begin_first(Client& client) {
  if (client.stream.empty() || client.stream_ends != planner::kNever) return;
  Item& item = client.stream.front();
  if (item.command && item.command->after != 0) {
    const std::pair after{client.rank, item.command->after};
    if (in_flight.contains(after)) return;
    Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
    // Another copy than the last of those that bring its bytes may have failed.
    const auto call = ordered.find(item.command->request);
    const bool incomplete =
        call != ordered.end() && call->second.spoiled && rank.content && !rank.content->has_source(*item.command);
    if (poisoned.contains(after) || incomplete || lenders.lost(client.rank, *item.command)) {
      poisoned.insert({client.rank, item.command->id});
    } else if (rank.content) {
      rank.content->start(*item.command);
      item.content = true;
    }
  }
  client.stream_ends = now + item.busy;
}

void Simulation::Impl::end_first(Client& client) {
  const Item item = std::move(client.stream.front());
  client.stream.pop_front();
  client.stream_ends = planner::kNever;
  if (item.command) {
    const bool now_poisoned = poisoned.contains({client.rank, item.command->id});
    if (!now_poisoned || !item.content) return report(Moving{client.rank, *item.command}, true, now_poisoned);
    throw std::logic_error("the simulation follows bytes that never came");
  }
  if (!item.event) return;
  Event e = *item.event;
  e.now = now;
  Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
  if (const auto* commit = std::get_if<event::Commit>(&e.what); commit && rank.content)
    rank.content->commit(commit->request);
  if (const auto* release = std::get_if<event::Release>(&e.what); release && rank.content)
    rank.content->give_back(release->request);
  give(client.rank, e);
}

bool Simulation::Impl::return_one() {
  for (auto& [request, call] : ordered) {
    if (call.returned || !call.all()) continue;
    call.returned = true;
    Client& client = clients[call.client];
    const std::size_t index = call.client;
    if (client.blocked_on == request) {
      client.blocked_on = 0;
      wake(index, now);
    }
    if (!call.restore) return true;
    give(client.rank, {now, client.program.history, event::Submit{.request = request}});
    return true;
  }
  return false;
}

int Simulation::Impl::fate(int r, const Command& c) const {
  if (ranks[static_cast<std::size_t>(r)].broken[static_cast<std::size_t>(c.link)] || lenders.lost(r, c)) return 2;
  const Faults& f = options.faults;
  const bool late = lenders.beyond(r, c.to, c.length) && !awaited.contains({r, c.id}) && !ordered.contains(c.request);
  if (late && Random(mixed(f.seed + 1) ^ c.id).chance(f.unready)) return 2;
  if (f.probability + f.permanent <= 0 || (touches_application(c) && !f.application_links)) return 0;
  Random random(mixed(f.seed) ^ mixed(c.id * 1024 + static_cast<std::uint64_t>(r)));
  if (random.chance(f.permanent)) return 2;
  return random.chance(f.probability) ? 1 : 0;
}

bool Simulation::Impl::reads_file(const Command& c) const {
  return c.from.at.kind == Endpoint::tier &&
         machine.planner.tiers[static_cast<std::size_t>(c.from.at.index)].medium == planner::Medium::file;
}

bool Simulation::Impl::hangs(const Command& c) const {
  const auto of = [&](const planner::Place& place) {
    return place.at.kind == Endpoint::tier && options.hang.at(place.at.index, now);
  };
  return of(c.from) || of(c.to);
}

// What is being written hangs.
void Simulation::Impl::report_overdue(std::uint64_t id) {
  const auto it = moving.find(id);
  if (it == moving.end() || it->second.command.to.at.index != options.hang.tier) return;
  const Rank& rank = ranks[static_cast<std::size_t>(it->second.rank)];
  const planner::CheckpointRef ref = it->second.command.checkpoint;
  const auto name = rank.names.find({ref.slot, ref.generation});
  if (name == rank.names.end() || rank.planner.find(name->second.first, name->second.second) != ref) return;
  give(it->second.rank, {now, name->second.first, event::NotDurable{name->second.second, options.hang.tier}});
}

void Simulation::Impl::carried(std::uint64_t id) {
  const Moving& m = moving.at(id);
  if (hangs(m.command)) {
    checked.emplace(options.hang.until, id);
    overdue.emplace(now + options.hang.patience, id);
    return;
  }
  Random random(mixed(options.faults.seed + 2) ^ mixed(id));
  if (options.checks == 0 || !reads_file(m.command) || random.chance(0.3)) return ended(id);
  checked.emplace(now + static_cast<Time>(random.below(static_cast<std::uint64_t>(options.checks))), id);
  give(m.rank, {.now = now, .what = event::Carried{m.command.id}});
}

void Simulation::Impl::ended(std::uint64_t id) {
  const Moving m = moving.at(id);
  moving.erase(id);
  report(m, false, false);
}

void Simulation::Impl::report(const Moving& m, bool on_stream, bool worthless) {
  Rank& rank = ranks[static_cast<std::size_t>(m.rank)];
  if (touches_application(m.command)) calls.end_copy(m.command.request);
  in_flight.erase({m.rank, m.command.id});
  const int fault = fate(m.rank, m.command);
  if (fault) poisoned.insert({m.rank, m.command.id});
  if (fault) ++rank.result.links[static_cast<std::size_t>(m.command.link)].failures;
  const bool by_call = !on_stream && !fault && touches_application(m.command);
  if (const auto it = ordered.find(m.command.request); by_call && it != ordered.end()) it->second.count(m.command);
  if (rank.content && worthless)
    rank.content->spoil(m.command);
  else if (rank.content) {
    if (fault)
      rank.content->fail(m.command);
    else
      rank.content->finish(m.command);
  }
  if (!fault && planner::on_file(machine.planner, machine.planner.links[static_cast<std::size_t>(m.command.link)].to))
    rank.result.filed[rank.names.at({m.command.checkpoint.slot, m.command.checkpoint.generation})] += m.command.length;
  event::Failed failed{.command = m.command.id};
  if (fault == 2 && reads_file(m.command))
    failed.cause = event::Failed::source;
  else if (fault == 2 && !on_stream)  // a transfer that has begun was not refused for lack of space
    failed.cause = event::Failed::no_room;
  give(m.rank, {.now = now, .what = fault ? event::Any(failed) : event::Finished{m.command.id}});
  syncing.moved(m.rank, rank.planner, m.command.checkpoint, now);
}

void Simulation::Impl::answered(int r, const Answer& a) {
  if (!calls.knows(a.request)) throw std::logic_error("an answer to no call");
  const Call& call = calls.of(a.request);
  if (a.reason != Reason::ok || call.kind != Op::Kind::reserve) return answer_call(r, a);
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  if (call.bytes > 0 && lenders.beyond(r, a.place, call.bytes))
    throw std::logic_error("reserved where memory has ended");
  if (rank.content) rank.content->lend(call.request, a.place, call.bytes, call.request, true);
  const bool held = call.bytes > 0 && provisioning.hold({.rank = r, .answer = a, .bytes = call.bytes}, now);
  if (!held) answer_call(r, a);
}

void Simulation::Impl::answer_call(int r, const Answer& a) {
  Call& call = calls.of(a.request);
  if (call.answered) throw std::logic_error("call " + std::to_string(a.request) + " was answered twice");
  if (calls.copying(a.request))
    throw std::logic_error("call " + std::to_string(a.request) + " was answered while its memory is in use");
  call.answered = true;
  call.ended = now;
  call.reason = a.reason;
  call.found_on = a.found_on;
  call.distance = a.distance;
  call.detail = a.detail;
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  const std::size_t index = calls.client_of(a.request);
  Client& client = clients[index];
  settle_content(rank, client, call, a);
  if (call.async) {
    --client.open_calls;
    if (client.joining && client.open_calls == 0) {
      client.joining = false;
      calls.at(client.join_call).ended = now;
      wake(index, now);
    }
  } else if (client.blocked_on == a.request) {
    client.blocked_on = 0;
    wake(index, now);
  }
  ordered.erase(a.request);
  if (self->on_answer) self->on_answer(call);
  calls.forget(a.request);
}

void Simulation::Impl::settle_content(Rank& rank, Client& client, const Call& call, const Answer& a) {
  const bool ok = a.reason == Reason::ok;
  const auto name = std::pair{call.history, call.version};
  const auto known = rank.written.find(name);
  if (call.kind == Op::Kind::checkpoint || call.kind == Op::Kind::reserve) {
    if (!ok && known != rank.written.end() && known->second.serial == call.request) rank.written.erase(known);
    if (ok && call.kind == Op::Kind::reserve) {
      if (call.bytes > 0 && !provisioning.usable(call.rank, a.place, call.bytes))
        throw std::logic_error("memory was reserved that is not ready");
      client.reserved[call.version].push_back(call.request);
    }
  } else if (call.kind == Op::Kind::borrow && ok) {
    client.borrowed[call.version].push_back(call.request);
    if (rank.content) rank.content->lend(call.request, a.place, call.bytes, calls.serial(call.request), false);
  } else if (call.kind == Op::Kind::restore && ok && rank.content) {
    rank.content->end_restore(call.request);
  }
  if (ok && call.kind == Op::Kind::checkpoint) provisioning.produced(call.rank, call.bytes, now);
  if (ok && (call.kind == Op::Kind::borrow || call.kind == Op::Kind::restore) && calls.serial(call.request) == 0)
    throw std::logic_error("what was never written was restored: version " + std::to_string(call.version));
  if (rank.content) rank.content->forget(call.request);
}

}  // namespace ebb::sim
