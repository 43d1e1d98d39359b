#include <algorithm>
#include <map>
#include <stdexcept>

#include "sim/random.hpp"
#include "sim/simulation_state.hpp"

namespace ebb::sim {

Simulation::Impl::Impl(const MachineModel& m, std::vector<std::vector<Program>> programs, const Options& o)
    : machine(m),
      options(o),
      provisioning(machine, static_cast<int>(programs.size())),
      lenders(machine.planner, programs.size()),
      syncing(machine, options, programs.size()) {
  if (machine.links.size() != machine.planner.links.size())
    throw std::invalid_argument("a machine model has one LinkModel for each link of the planner's machine");
  ranks.reserve(programs.size());
  for (std::size_t r = 0; r < programs.size(); ++r) {
    for (std::size_t l = 0; l < machine.links.size(); ++l) link_of(static_cast<int>(r), static_cast<int>(l), 0);
    ranks.emplace_back(machine.planner, options.verify);
    ranks.back().broken.resize(machine.links.size());
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

// In the network, by GPU (-1: the node's) and number.
int Simulation::Impl::group_of(int rank, int number, planner::PartyId lender) {
  const GroupModel* model = &machine.groups.at(static_cast<std::size_t>(number));
  int gpu = model->of_node ? -1 : rank;
  if (model->of_lender >= 0) {
    number = model->of_lender;
    model = &machine.groups.at(static_cast<std::size_t>(number));
    if (static_cast<std::size_t>(rank) >= machine.lenders.size() ||
        machine.lenders[static_cast<std::size_t>(rank)].empty() || model->of_node || model->of_lender >= 0)
      throw std::invalid_argument("a lender's group needs a lender for each rank, and a group of GPUs");
    const std::vector<int>& row = machine.lenders[static_cast<std::size_t>(rank)];
    gpu = row[std::min<std::size_t>(lender == 0 ? 0 : lender - 1, row.size() - 1)];
    if (gpu < 0 || gpu == rank) throw std::invalid_argument("a GPU lends to another one");
  }
  const auto [it, fresh] = groups.try_emplace({gpu, number});
  if (fresh) it->second = network.add_group(model->bytes_per_s);
  return it->second;
}

// A rank's link in the network; to and from the memory of each lender it is another one.
int Simulation::Impl::link_of(int rank, int number, planner::PartyId lender) {
  const auto [it, fresh] = network_links.try_emplace({rank, number, lender});
  if (!fresh) return it->second;
  const LinkModel& link = machine.links[static_cast<std::size_t>(number)];
  std::vector<int> shared;
  for (int group : link.groups) shared.push_back(group_of(rank, group, lender));
  it->second = network.add_link(link.bytes_per_s, link.latency,
                                machine.planner.links[static_cast<std::size_t>(number)].depth, link.shared, shared);
  return it->second;
}

void Simulation::Impl::lend_at_first() {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::map<TierIndex, planner::SegmentId> segments;
    for (const LentModel& one : machine.lent) {
      const Op op =
          op::lend(one.tier, ++segments[one.tier], one.bytes, static_cast<planner::PartyId>(one.lender + 1), true);
      lender_event(static_cast<int>(r), lenders.lend(static_cast<int>(r), op, ranks[r].content));
    }
  }
}

bool Simulation::Impl::idle() const {
  const auto paced = [](const Rank& rank) { return rank.planner.pending() > 0 && rank.wakeup != planner::kNever; };
  return moving.empty() && ordered.empty() && syncing.idle() && std::ranges::none_of(ranks, paced) &&
         std::all_of(clients.begin(), clients.end(),
                     [](const Client& c) { return c.done && c.open_calls == 0 && c.stream.empty(); });
}

bool Simulation::Impl::step() {
  if (idle()) return false;
  if (return_one() || release_one()) return true;
  const auto over = [&](RequestId id) {
    const auto it = ordered.find(id);
    return calls.of(id).answered || provisioning.holds_answer(id) || (it != ordered.end() && it->second.returned);
  };
  while (!deadlines.empty() && over(deadlines.top().second)) deadlines.pop();
  for (Client& c : clients) begin_first(c);
  Time at = std::min(network.next(), ready.empty() ? planner::kNever : std::get<0>(ready.top()));
  if (!deadlines.empty()) at = std::min(at, deadlines.top().first);
  if (!checked.empty()) at = std::min(at, checked.top().first);
  if (!overdue.empty()) at = std::min(at, std::max(overdue.top().first, now));
  for (const Rank& rank : ranks)
    if (rank.wakeup != planner::kNever) at = std::min(at, std::max(rank.wakeup, now));
  at = std::min(at, provisioning.next(now));
  for (const Client& c : clients) at = std::min(at, c.stream_ends);
  at = std::min({at, syncing.next(now), lenders.next(now)});
  if (at == planner::kNever) stall();
  if (at != now) ticks_at_once = 0;
  now = at;
  for (Client& c : clients)
    if (c.stream_ends <= now) {
      end_first(c);
      return true;
    }
  if (network.next() <= now) {
    if (const auto done = network.advance(now)) carried(done->id);
    return true;
  }
  if (!checked.empty() && checked.top().first <= now) {
    const std::uint64_t id = checked.top().second;
    checked.pop();
    ended(id);
    return true;
  }
  if (!overdue.empty() && overdue.top().first <= now) {
    const std::uint64_t id = overdue.top().second;
    overdue.pop();
    report_overdue(id);
    return true;
  }
  if (const auto synced = syncing.take_due(now)) {
    if (const auto what = syncing.outcome(*synced, now, ranks[static_cast<std::size_t>(synced->rank)].planner))
      give(synced->rank, {now, synced->history, *what});
    return true;
  }
  if (const auto released = syncing.take_released(now)) {
    give(released->first, {now, 0, released->second});
    return true;
  }
  if (const auto due = lenders.due(now)) {
    lender_event(due->rank, lenders.lose(*due, ranks[static_cast<std::size_t>(due->rank)].content));
    return true;
  }
  if (provisioning.advance(now)) return true;
  if (!deadlines.empty() && deadlines.top().first <= now) {
    const RequestId request = deadlines.top().second;
    deadlines.pop();
    const Call& call = calls.of(request);
    give(call.rank, {now, call.history, event::Cancel{request}});
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
    give(static_cast<int>(r), {.now = now, .what = event::Tick{}});
    return true;
  }
  throw std::logic_error("the simulation has lost its next event");
}

void Simulation::Impl::stall() const {
  std::string what = "stall at " + std::to_string(now) + " ns: nothing moves, and unanswered are";
  for (const Call& c : calls.all())
    if (!c.answered)
      what += " [call " + std::to_string(c.request) + " kind " + std::to_string(static_cast<int>(c.kind)) +
              " history " + std::to_string(c.history) + " version " + std::to_string(c.version) + " bytes " +
              std::to_string(c.bytes) + "]";
  throw std::logic_error(what);
}

Simulation::Simulation(const MachineModel& machine, std::vector<std::vector<Program>> programs, const Options& options)
    : state_(std::make_unique<Impl>(machine, std::move(programs), options)) {
  state_->self = this;
  state_->lend_at_first();
}
Simulation::~Simulation() = default;

bool Simulation::step() { return state_->step(); }
void Simulation::append(std::size_t index, Op op) {
  Impl::Client& client = state_->clients.at(index);
  client.barriers_left += op.kind == Op::Kind::barrier;
  client.program.ops.push_back(std::move(op));
  if (client.done) state_->wake(index, state_->now);
  client.done = false;
}
bool Simulation::ended(std::size_t index) const { return state_->clients.at(index).done; }
Time Simulation::now() const { return state_->now; }
const planner::Planner& Simulation::planner(int rank) const {
  return state_->ranks.at(static_cast<std::size_t>(rank)).planner;
}

Result Simulation::result() const {
  Result out;
  out.calls = state_->calls.all();
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
    const Impl::Rank& rank = state_->ranks[r];
    RankResult result = rank.result;
    for (std::size_t l = 0; l < links; ++l) result.links[l].name = state_->machine.planner.links[l].name;
    for (const auto& [key, index] : state_->network_links) {
      const auto [rank_of, link, lender] = key;
      if (rank_of != static_cast<int>(r)) continue;
      const Network::LinkTraffic& use = state_->network.use(index);
      auto& sum = result.links[static_cast<std::size_t>(link)];
      sum.bytes += use.bytes;
      sum.transfers += use.transfers;
      sum.busy = std::max(sum.busy, use.busy);
    }
    for (std::size_t t = 0; t < state_->machine.planner.tiers.size(); ++t)
      result.tiers.push_back(rank.planner.use(static_cast<TierIndex>(t)));
    result.counters = rank.planner.counters();
    result.memories = state_->provisioning.results(static_cast<int>(r));
    out.ranks.push_back(std::move(result));
  }
  return out;
}

}  // namespace ebb::sim
