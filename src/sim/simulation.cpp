#include "sim/simulation.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <set>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "sim/content.hpp"
#include "sim/network.hpp"
#include "sim/random.hpp"

namespace ebb::sim {

using policy::Answer;
using policy::Command;
using policy::Endpoint;
using policy::Event;
using policy::EventKind;
using policy::Output;
using policy::Planner;
using policy::Reason;
using policy::RequestId;

namespace {

struct Written {
  std::uint64_t serial = 0;
  Bytes bytes = 0;
};

// What a client's stream holds: it computes, copies, and tells of an event once it gets there.
struct Item {
  Time busy = 0;
  std::optional<Command> command;
  std::optional<Event> event;
  bool content = false;  // the copy's bytes are followed from the time it was enqueued
};

// A call in stream order: how much of it is on the stream, or copied.
struct Ordered {
  std::size_t client = 0;
  bool restore = false;
  Bytes bytes = 0, enqueued = 0, ordered_to = 0;
  std::map<Bytes, Bytes> ahead;
  bool spoiled = false, returned = false;
  bool all() const { return !spoiled && enqueued == bytes; }
  void count(const Command& c) {
    Bytes& end = ahead[c.offset];
    end = std::max(end, c.offset + c.length);
    for (auto first = ahead.begin(); first != ahead.end() && first->first <= enqueued; first = ahead.erase(first))
      enqueued = std::max(enqueued, first->second);
  }
};

struct Client {
  int rank = 0, index = 0;
  Program program;
  std::size_t next = 0;
  std::size_t barriers_left = 0;
  RequestId blocked_on = 0;
  bool at_barrier = false, joining = false, done = false;
  std::size_t open_calls = 0;  // asynchronous ones
  std::size_t join_call = 0;
  std::map<Version, std::vector<RequestId>> reserved, borrowed;
  std::deque<Item> stream;
  Time stream_ends = policy::kNever;  // what its first item does; kNever: it has not begun
};

struct Rank {
  Rank(const policy::Machine& machine, bool verify) : planner(machine) {
    if (verify) content.emplace(machine);
  }
  Planner planner;
  std::optional<Content> content;
  Time wakeup = policy::kNever;
  std::vector<bool> broken;
  std::vector<Bytes> ends;  // of the tiers' memory
  std::map<std::pair<HistoryId, Version>, Written> written;
  RankResult result;
};

struct Moving {
  int rank = 0;
  Command command;
};

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

struct Simulation::State {
  const MachineModel machine;
  const Options options;
  Simulation* self = nullptr;
  Network network;
  std::vector<Rank> ranks;
  std::vector<Client> clients;
  Time now = 0, makespan = 0;
  std::uint64_t events = 0, ticks_at_once = 0;
  std::vector<Call> calls;
  std::unordered_map<RequestId, std::size_t> call_of;
  std::unordered_map<RequestId, std::size_t> client_of;
  std::unordered_map<RequestId, int> copies_of;  // commands under way that touch a call's own memory
  std::unordered_map<std::uint64_t, Moving> moving;
  RequestId next_request = 1;
  std::uint64_t next_moving = 1;
  std::map<RequestId, Ordered> ordered;  // and not answered
  std::set<std::pair<int, policy::CommandId>> under_way, spoilt, awaited;  // awaited: something enqueued comes after it
  using Ready = std::tuple<Time, std::uint64_t, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  std::uint64_t ready_sequence = 0;
  std::priority_queue<std::pair<Time, RequestId>, std::vector<std::pair<Time, RequestId>>, std::greater<>> deadlines;
  Output scratch;

  State(const MachineModel& m, std::vector<std::vector<Program>> programs, const Options& o) : machine(m), options(o) {
    if (machine.links.size() != machine.planner.links.size())
      throw std::invalid_argument("a machine model has one LinkModel for each link of the planner's machine");
    std::vector<int> node_groups(machine.groups.size(), -1);
    ranks.reserve(programs.size());
    for (std::size_t r = 0; r < programs.size(); ++r) {
      std::vector<int> groups;
      for (std::size_t g = 0; g < machine.groups.size(); ++g) {
        if (!machine.groups[g].of_node)
          groups.push_back(network.add_group(machine.groups[g].bytes_per_s));
        else {
          if (node_groups[g] < 0) node_groups[g] = network.add_group(machine.groups[g].bytes_per_s);
          groups.push_back(node_groups[g]);
        }
      }
      for (std::size_t l = 0; l < machine.links.size(); ++l) {
        const LinkModel& link = machine.links[l];
        network.add_link(link.bytes_per_s, link.latency, machine.planner.links[l].depth, link.shared,
                         link.group < 0 ? -1 : groups.at(static_cast<std::size_t>(link.group)));
      }
      ranks.emplace_back(machine.planner, options.verify);
      ranks.back().broken.resize(machine.links.size());
      for (const policy::TierSpec& t : machine.planner.tiers) ranks.back().ends.push_back(t.capacity);
      ranks.back().result.links.resize(machine.links.size());
      for (std::size_t c = 0; c < programs[r].size(); ++c) {
        Client client;
        client.rank = static_cast<int>(r);
        client.index = static_cast<int>(c);
        client.program = std::move(programs[r][c]);
        for (const Op& op : client.program.ops) client.barriers_left += op.kind == Op::Kind::barrier;
        clients.push_back(std::move(client));
      }
    }
    for (std::size_t c = 0; c < clients.size(); ++c) wake(c, clients[c].program.start);
  }

  void wake(std::size_t client, Time at) { ready.emplace(at, ready_sequence++, client); }

  // --- the planner's side -------------------------------------------------------------------------------------------

  void give(int r, const Event& event) {
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
    if (rank.content && event.kind == EventKind::adopt)  // what it gave may read it at once
      rank.content->adopt(*rank.planner.find(event.history, event.version),
                          static_cast<TierIndex>(machine.planner.tiers.size() - 1), event.bytes,
                          rank.written.at({event.history, event.version}).serial);
    if (rank.content)
      for (const policy::Freed& f : out.freed) rank.content->freed(f);
    for (const Command& c : out.commands) begin(r, c);
    for (const RequestId id : out.spoiled)
      if (const auto it = ordered.find(id); it != ordered.end()) it->second.spoiled = true;
    for (const Answer& a : out.answers) answered(r, a);
    for (const policy::Failure& f : out.failures) rank.result.failures.push_back(f);
    if (options.check_every && events % static_cast<std::uint64_t>(options.check_every) == 0) rank.planner.check();
    if (self->observer) self->observer(r, event, out);
    if (options.record) rank.result.steps.push_back({event, out});
  }

  static bool touches_application(const Command& c) {
    return c.from.at.kind == Endpoint::application || c.to.at.kind == Endpoint::application;
  }

  bool beyond(int r, const policy::Place& place, Bytes bytes) const {
    if (place.at.kind != Endpoint::tier) return false;
    const auto t = static_cast<std::size_t>(place.at.index);
    if (machine.planner.tiers[t].medium == policy::Medium::file) return false;
    return place.offset + bytes > ranks[static_cast<std::size_t>(r)].ends[t];
  }

  void begin(int r, const Command& c) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    if (beyond(r, c.to, c.length)) throw std::logic_error("a command writes where memory has ended");
    if (touches_application(c)) {
      const auto call = call_of.find(c.request);
      if (call == call_of.end() || calls[call->second].answered)
        throw std::logic_error("a command uses the memory of call " + std::to_string(c.request) + ", which is over");
      ++copies_of[c.request];
    }
    under_way.insert({r, c.id});
    if (const auto it = ordered.find(c.request); touches_application(c) && it != ordered.end()) {
      if (it->second.returned) throw std::logic_error("a copy was ordered for a call that has returned");
      if (c.offset < it->second.ordered_to) {  // once more, from another place
        it->second.enqueued = std::min(it->second.enqueued, c.offset);
        it->second.ahead.clear();
      }
      it->second.ordered_to = c.offset + c.length;
      if (c.from.at.kind != Endpoint::ring && c.to.at.kind != Endpoint::ring) return enqueue(rank, it->second, c);
    }
    if (c.after != 0) throw std::logic_error("only what is enqueued can come after another");
    if (rank.content) rank.content->start(c);
    const std::uint64_t id = next_moving++;
    moving.emplace(id, Moving{r, c});
    const int link = r * static_cast<int>(machine.links.size()) + c.link;
    if (network.queued(link) >=
        static_cast<std::size_t>(machine.planner.links.at(static_cast<std::size_t>(c.link)).depth))
      throw std::logic_error("more commands at once than link " +
                             machine.planner.links[static_cast<std::size_t>(c.link)].name + " may hold");
    network.submit(link, id, c.length, now);
  }

  void enqueue(Rank& rank, Ordered& call, const Command& c) {
    Client& client = clients[call.client];
    if (c.after != 0) awaited.insert({client.rank, c.after});
    Item item;
    item.busy = 1 + static_cast<Time>(c.length * 1'000'000'000 / machine.links[static_cast<std::size_t>(c.link)].bytes_per_s);
    item.command = c;
    item.content = c.after == 0;
    if (item.content && rank.content) rank.content->start(c);
    call.count(c);
    client.stream.push_back(std::move(item));
  }

  void enqueue(Client& client, Time busy, std::optional<Event> event) {
    Item item;
    item.busy = busy;
    item.event = std::move(event);
    client.stream.push_back(std::move(item));
  }

  // Begins what is first on a stream, if what that comes after has ended.
  void begin_first(Client& client) {
    if (client.stream.empty() || client.stream_ends != policy::kNever) return;
    Item& item = client.stream.front();
    if (item.command && item.command->after != 0) {
      const std::pair after{client.rank, item.command->after};
      if (under_way.contains(after)) return;
      Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
      if (spoilt.contains(after)) {
        spoilt.insert({client.rank, item.command->id});
      } else if (rank.content) {
        rank.content->start(*item.command);
        item.content = true;
      }
    }
    client.stream_ends = now + item.busy;
  }

  void end_first(Client& client) {
    const Item item = std::move(client.stream.front());
    client.stream.pop_front();
    client.stream_ends = policy::kNever;
    if (item.command) {
      const bool spoilt_now = spoilt.contains({client.rank, item.command->id});
      if (!spoilt_now || !item.content) return report(Moving{client.rank, *item.command}, true, spoilt_now);
      throw std::logic_error("the simulation follows bytes that never came");
    }
    if (!item.event) return;
    Event e = *item.event;
    e.now = now;
    Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
    if (rank.content && e.kind == EventKind::commit) rank.content->commit(e.request);
    if (rank.content && e.kind == EventKind::release) rank.content->give_back(e.request);
    give(client.rank, e);
  }

  // A call all of whose copies are on its stream.
  bool return_one() {
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
      Event e;
      e.now = now;
      e.kind = EventKind::submit;
      e.request = request;
      e.history = client.program.history;
      e.version = calls[call_of.at(request)].version;
      give(client.rank, e);
      return true;
    }
    return false;
  }

  // 0: good; 1: failed; 2: failed for good.
  int fate(int r, const Command& c) const {
    if (ranks[static_cast<std::size_t>(r)].broken[static_cast<std::size_t>(c.link)]) return 2;
    const Faults& f = options.faults;
    if (beyond(r, c.to, c.length) && !awaited.contains({r, c.id}) && !ordered.contains(c.request) && Random(mixed(f.seed + 1) ^ c.id).chance(f.unready)) return 2;
    if (f.probability + f.permanent <= 0 || (touches_application(c) && !f.application_links)) return 0;
    Random random(mixed(f.seed) ^ mixed(c.id * 1024 + static_cast<std::uint64_t>(r)));
    if (random.chance(f.permanent)) return 2;
    return random.chance(f.probability) ? 1 : 0;
  }

  void ended(std::uint64_t id) {
    const Moving m = moving.at(id);
    moving.erase(id);
    report(m, false, false);
  }

  void report(const Moving& m, bool on_stream, bool worthless) {
    Rank& rank = ranks[static_cast<std::size_t>(m.rank)];
    if (touches_application(m.command) && --copies_of[m.command.request] == 0) copies_of.erase(m.command.request);
    under_way.erase({m.rank, m.command.id});
    const int fault = fate(m.rank, m.command);
    if (fault) spoilt.insert({m.rank, m.command.id});
    if (fault) ++rank.result.links[static_cast<std::size_t>(m.command.link)].failures;
    if (const auto it = ordered.find(m.command.request); !on_stream && !fault && it != ordered.end() && touches_application(m.command))
      it->second.count(m.command);
    if (rank.content && worthless) rank.content->spoil(m.command);
    else if (rank.content) {
      if (fault)
        rank.content->fail(m.command);
      else
        rank.content->finish(m.command);
    }
    Event e;
    e.now = now;
    e.kind = fault ? EventKind::failed : EventKind::finished;
    e.command = m.command.id;
    const policy::Endpoint source = m.command.from.at;
    const bool read = source.kind == Endpoint::tier &&
                      machine.planner.tiers[static_cast<std::size_t>(source.index)].medium == policy::Medium::file;
    e.hopeless = fault == 2 && read;
    e.flag = fault == 2 && !on_stream && !read;  // what has been begun was not refused for want of room
    give(m.rank, e);
  }

  void answered(int r, const Answer& a) {
    const auto found = call_of.find(a.request);
    if (found == call_of.end()) throw std::logic_error("an answer to no call");
    Call& call = calls[found->second];
    if (call.answered) throw std::logic_error("call " + std::to_string(a.request) + " was answered twice");
    if (copies_of.contains(a.request))
      throw std::logic_error("call " + std::to_string(a.request) + " was answered while its memory is in use");
    call.answered = true;
    call.ended = now;
    call.reason = a.reason;
    call.found_on = a.found_on;
    call.distance = a.distance;
    call.detail = a.detail;
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    Client& client = clients[client_of.at(a.request)];
    settle_content(rank, client, call, a);
    if (call.async) {
      --client.open_calls;
      if (client.joining && client.open_calls == 0) {
        client.joining = false;
        calls[client.join_call].ended = now;
        wake(client_of.at(a.request), now);
      }
    } else if (client.blocked_on == a.request) {
      client.blocked_on = 0;
      wake(client_of.at(a.request), now);
    }
    ordered.erase(a.request);
    if (self->on_answer) self->on_answer(call);
    client_of.erase(a.request);
  }

  void settle_content(Rank& rank, Client& client, const Call& call, const Answer& a) {
    const bool ok = a.reason == Reason::ok;
    const auto name = std::pair{call.history, call.version};
    const auto known = rank.written.find(name);
    if (call.kind == Op::Kind::checkpoint || call.kind == Op::Kind::reserve) {
      if (!ok && known != rank.written.end() && known->second.serial == call.request) rank.written.erase(known);
      if (ok && call.kind == Op::Kind::reserve) {
        if (call.bytes > 0 && beyond(call.rank, a.place, call.bytes)) throw std::logic_error("reserved where memory has ended");
        client.reserved[call.version].push_back(call.request);
        if (rank.content) rank.content->lend(call.request, a.place, call.bytes, call.request, true);
      }
    } else if (call.kind == Op::Kind::borrow && ok) {
      client.borrowed[call.version].push_back(call.request);
      if (rank.content) rank.content->lend(call.request, a.place, call.bytes, serials.at(call.request), false);
    } else if (call.kind == Op::Kind::restore && ok && rank.content) {
      rank.content->end_restore(call.request);
    }
    if (ok && (call.kind == Op::Kind::borrow || call.kind == Op::Kind::restore) && serials.at(call.request) == 0)
      throw std::logic_error("what was never written was restored: version " + std::to_string(call.version));
    serials.erase(call.request);
    if (rank.content) rank.content->forget(call.request);
  }
  std::unordered_map<RequestId, std::uint64_t> serials;  // of the write that a restore or borrow asks for

  // --- the application's side ---------------------------------------------------------------------------------------

  void act(std::size_t index) {
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
        if (op.ordered && op.kind == Op::Kind::commit) hand_back(index, op, client.reserved);
        else if (const RequestId held = take(client.reserved, op, rank, op.kind == Op::Kind::commit)) tell(index, op, held);
        wake(index, now);
        return;
      case Op::Kind::release:
        if (op.ordered) hand_back(index, op, client.borrowed);
        else if (const RequestId loan = take(client.borrowed, op, rank, false)) tell(index, op, loan);
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

  void adopt(const Client& client, const Op& op) {
    Rank& rank = ranks[static_cast<std::size_t>(client.rank)];
    if (machine.planner.tiers.back().medium != policy::Medium::file) return;
    if (rank.planner.find(client.program.history, op.version)) return;
    Event e = event_for(client, op);
    e.kind = EventKind::adopt;
    rank.written[{client.program.history, op.version}] = {next_request++, op.bytes};
    give(client.rank, e);
  }

  // Once the stream has done what it holds.
  void hand_back(std::size_t index, const Op& op, std::map<Version, std::vector<RequestId>>& open) {
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

  static RequestId take(std::map<Version, std::vector<RequestId>>& open, const Op& op, Rank& rank, bool commit) {
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

  static void forget(Rank& rank, HistoryId history, const Op& op) {
    if (!op.flag)
      rank.written.erase({history, op.version});
    else
      std::erase_if(rank.written, [&](const auto& entry) { return entry.first.first == history; });
  }

  Event event_for(const Client& client, const Op& op) const {
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

  void tell(std::size_t index, const Op& op, RequestId loan = 0) {
    Event e = event_for(clients[index], op);
    e.request = loan;
    give(clients[index].rank, e);
  }

  void call(std::size_t index, const Op& op) {
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
      ordered.emplace(request, Ordered{.client = index, .restore = op.kind == Op::Kind::restore, .bytes = calls[place].bytes, .ahead = {}});
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

  void join(std::size_t index) {
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

  void meet(Client& client) {
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

  // --- time ---------------------------------------------------------------------------------------------------------

  bool idle() const {
    return moving.empty() && ordered.empty() &&
           std::all_of(clients.begin(), clients.end(), [](const Client& c) { return c.done && c.open_calls == 0 && c.stream.empty(); });
  }

  bool step() {
    if (idle()) return false;
    if (return_one()) return true;
    const auto over = [&](RequestId id) {
      const auto it = ordered.find(id);
      return calls[call_of.at(id)].answered || (it != ordered.end() && it->second.returned);
    };
    while (!deadlines.empty() && over(deadlines.top().second)) deadlines.pop();
    for (Client& c : clients) begin_first(c);
    Time at = std::min(network.next(), ready.empty() ? policy::kNever : std::get<0>(ready.top()));
    if (!deadlines.empty()) at = std::min(at, deadlines.top().first);
    for (const Rank& rank : ranks)
      if (rank.wakeup != policy::kNever) at = std::min(at, std::max(rank.wakeup, now));
    for (const Client& c : clients) at = std::min(at, c.stream_ends);
    if (at == policy::kNever) stall();
    if (at != now) ticks_at_once = 0;
    now = at;
    for (Client& c : clients)
      if (c.stream_ends <= now) {
        end_first(c);
        return true;
      }
    if (network.next() <= now) {
      if (const auto done = network.advance(now)) ended(done->id);
      return true;
    }
    if (!deadlines.empty() && deadlines.top().first <= now) {
      Event e;
      e.now = now;
      e.kind = EventKind::cancel;
      e.request = deadlines.top().second;
      deadlines.pop();
      give(calls[call_of.at(e.request)].rank, e);
      return true;
    }
    if (!ready.empty() && std::get<0>(ready.top()) <= now) {
      const std::size_t client = std::get<2>(ready.top());
      ready.pop();
      act(client);
      return true;
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].wakeup > now) continue;
      if (++ticks_at_once > 10'000) throw std::logic_error("the planner asks to be woken at once, again and again");
      Event e;
      e.now = now;
      give(static_cast<int>(r), e);
      return true;
    }
    throw std::logic_error("the simulation has lost its next event");
  }

  [[noreturn]] void stall() const {
    std::string what = "stall at " + std::to_string(now) + " ns: nothing moves, and unanswered are";
    for (const Call& c : calls)
      if (!c.answered)
        what += " [call " + std::to_string(c.request) + " kind " + std::to_string(static_cast<int>(c.kind)) +
                " history " + std::to_string(c.history) + " version " + std::to_string(c.version) + " bytes " +
                std::to_string(c.bytes) + "]";
    throw std::logic_error(what);
  }
};

Simulation::Simulation(const MachineModel& machine, std::vector<std::vector<Program>> programs, const Options& options)
    : state_(std::make_unique<State>(machine, std::move(programs), options)) {
  state_->self = this;
}
Simulation::~Simulation() = default;

bool Simulation::step() { return state_->step(); }
void Simulation::append(std::size_t index, Op op) {
  Client& client = state_->clients.at(index);
  client.barriers_left += op.kind == Op::Kind::barrier;
  client.program.ops.push_back(std::move(op));
  if (client.done) state_->wake(index, state_->now);
  client.done = false;
}
bool Simulation::ended(std::size_t index) const { return state_->clients.at(index).done; }
Time Simulation::now() const { return state_->now; }
const policy::Planner& Simulation::planner(int rank) const {
  return state_->ranks.at(static_cast<std::size_t>(rank)).planner;
}

Result Simulation::result() const {
  Result out;
  out.calls = state_->calls;
  out.makespan = state_->makespan;
  out.events = state_->events;
  for (const Call& c : out.calls) {
    if (c.kind == Op::Kind::checkpoint || c.kind == Op::Kind::reserve)
      out.checkpoint_blocked += c.blocked();
    else if (c.kind == Op::Kind::wait)
      out.wait_blocked += c.blocked();
    else
      out.restore_blocked += c.blocked();
  }
  const std::size_t links = state_->machine.links.size();
  for (std::size_t r = 0; r < state_->ranks.size(); ++r) {
    const Rank& rank = state_->ranks[r];
    RankResult result = rank.result;
    for (std::size_t l = 0; l < links; ++l) {
      const Network::Use& use = state_->network.use(static_cast<int>(r * links + l));
      result.links[l].name = state_->machine.planner.links[l].name;
      result.links[l].bytes = use.bytes;
      result.links[l].transfers = use.transfers;
      result.links[l].busy = use.busy;
    }
    for (std::size_t t = 0; t < state_->machine.planner.tiers.size(); ++t)
      result.tiers.push_back(rank.planner.use(static_cast<TierIndex>(t)));
    result.counters = rank.planner.counters();
    out.ranks.push_back(std::move(result));
  }
  return out;
}

}  // namespace ebb::sim
