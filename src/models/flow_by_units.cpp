#include <algorithm>
#include <limits>
#include <stdexcept>

#include "models/flow_graph.hpp"
#include "models/flow_strategies.hpp"

namespace ebb::models {
namespace {

using Price = MaxFlow::Amount;  // picoseconds
constexpr Price kPicoseconds = 1'000'000'000'000;
constexpr Price kNoPath = std::numeric_limits<Price>::max();
constexpr Bytes kMostUnits = 1'000'000;

// The network with whole units on its edges. A link costs what its units need, one after another, with the next one.
class UnitFlow {
 public:
  UnitFlow(const PeerLinks& links, const Overflow& overflow, const FlowOptions& options)
      : graph_(links, overflow), added_(options.cost == PathCost::added) {
    std::vector<bool> present;
    for (Bytes remainder : overflow.remainder) present.push_back(remainder > 0);
    graph_.add_slice(present);
    for (const FlowGraph::Edge& edge : graph_.edges) {
      const bool bytes = edge.kind == FlowGraph::Edge::bytes, rate = edge.kind == FlowGraph::Edge::rate;
      const int number = static_cast<int>(room_.size());
      const bool source = graph_.network.from(number) == graph_.source();
      // The last unit of a remainder may be a part of one; memory takes whole units.
      room_.push_back(bytes ? (edge.amount + (source ? options.unit - 1 : 0)) / options.unit : kMostUnits);
      unit_cost_.push_back(rate ? (options.unit * kPicoseconds + edge.amount - 1) / edge.amount : 0);
    }
    units.resize(room_.size());
  }
  // One more unit along the cheapest path; false: there is no more to send.
  bool add_unit() {
    find_paths();
    if (cost_[static_cast<std::size_t>(graph_.sink())] == kNoPath) return false;
    for (int node = graph_.sink(); node != graph_.source();) {
      const Arc arc = came_by_[static_cast<std::size_t>(node)];
      units[arc.edge] += arc.back ? -Bytes{1} : Bytes{1};
      node = arc.back ? graph_.network.to(static_cast<int>(arc.edge)) : graph_.network.from(static_cast<int>(arc.edge));
    }
    return true;
  }
  const FlowGraph& graph() const { return graph_; }
  std::vector<Bytes> units;  // by edge

 private:
  struct Arc {
    std::size_t edge = 0;
    bool back = false;
  };
  // Bellman and Ford's: the costs of arcs back, which undo a unit, may be below 0.
  void find_paths() {
    const auto nodes = static_cast<std::size_t>(graph_.network.nodes());
    cost_.assign(nodes, kNoPath);
    came_by_.assign(nodes, {});
    cost_[static_cast<std::size_t>(graph_.source())] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t e = 0; e < units.size(); ++e) {
        const auto from = static_cast<std::size_t>(graph_.network.from(static_cast<int>(e)));
        const auto to = static_cast<std::size_t>(graph_.network.to(static_cast<int>(e)));
        const Price now = static_cast<Price>(units[e]) * unit_cost_[e];
        if (units[e] < room_[e]) changed |= relax(from, to, {e, false}, now + unit_cost_[e]);
        if (units[e] > 0) changed |= relax(to, from, {e, true}, added_ ? -now : 0);
      }
    }
  }
  bool relax(std::size_t from, std::size_t to, Arc arc, Price cost) {
    if (cost_[from] == kNoPath) return false;
    const Price whole = added_ ? cost_[from] + cost : std::max(cost_[from], cost);
    if (whole >= cost_[to]) return false;
    cost_[to] = whole;
    came_by_[to] = arc;
    return true;
  }

  FlowGraph graph_;
  bool added_;
  std::vector<Bytes> room_;       // by edge, in units
  std::vector<Price> unit_cost_;  // by edge
  std::vector<Price> cost_;       // by node
  std::vector<Arc> came_by_;      // by node
};

// What a transfer would need alone on its own links.
Price time_alone(const PeerLinks& links, const Transfer& transfer) {
  Rate rate = transfer.kind == RouteKind::host ? links.host[gpu_index(transfer.from)]
                                               : links.pair(transfer.from, transfer.peer);
  if (transfer.kind == RouteKind::relay) rate = std::min(rate, links.host[gpu_index(transfer.peer)]);
  return transfer.bytes * kPicoseconds / rate;
}

}  // namespace

std::vector<Transfer> plan_by_units(const PeerLinks& links, const Overflow& overflow, const FlowOptions& options) {
  Bytes total = 0;
  for (Bytes remainder : overflow.remainder) total += remainder;
  if (options.unit == 0 || total / options.unit >= kMostUnits)
    throw std::logic_error("a unit is too small for the remainders");
  UnitFlow flow(links, overflow, options);
  while (flow.add_unit()) {
  }
  std::vector<Transfer> transfers = flow.graph().transfers(flow.units, options.unit);
  // The last unit of a remainder is cut off where that saves most.
  for (int i = 0; i < links.gpus(); ++i) {
    Transfer* longest = nullptr;
    Bytes sent = 0;
    for (Transfer& t : transfers) {
      if (t.from != i) continue;
      sent += t.bytes;
      if (longest == nullptr || time_alone(links, t) > time_alone(links, *longest)) longest = &t;
    }
    if (longest != nullptr) longest->bytes -= sent - overflow.remainder[gpu_index(i)];
  }
  return transfers;
}

}  // namespace ebb::models
