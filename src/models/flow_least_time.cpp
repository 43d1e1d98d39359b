#include <algorithm>
#include <stdexcept>

#include "models/flow_graph.hpp"
#include "models/flow_strategies.hpp"

namespace ebb::models {
namespace {

using Amount = MaxFlow::Amount;

// Bytes are counted in billionths: a rate in bytes a second times nanoseconds is then a whole number.
constexpr Amount kBillion = 1'000'000'000;

// Nanoseconds, as a line over the time T that is sought: fixed + slope * T.
struct SliceLength {
  Time fixed = 0;
  int slope = 0;
};

Amount upward(Amount a, Amount b) { return (a + b - 1) / b; }  // a > 0

// The network over the slices of time between the ends that are decided; a link works for the sources that have not
// ended. `open`: the first slice ends at T, when all others end.
struct SlicedGraph {
  SlicedGraph(const PeerLinks& links, const Overflow& overflow, const std::vector<Time>& ends, bool open)
      : graph(links, overflow) {
    std::vector<Time> times = ends;
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    std::erase(times, 0);
    std::vector<bool> present(ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) present[i] = overflow.remainder[i] > 0;
    if (open) add(present, {0, 1});
    Time begin = 0;
    for (Time end : times) {
      for (std::size_t i = 0; i < ends.size(); ++i) present[i] = ends[i] >= end;
      add(present, {end - begin, open && begin == 0 ? -1 : 0});
      begin = end;
    }
  }
  void add(const std::vector<bool>& present, SliceLength length) {
    graph.add_slice(present);
    lengths.push_back(length);
  }
  Amount capacity(const FlowGraph::Edge& edge, Time t) const {
    if (edge.kind == FlowGraph::Edge::unlimited) return kBillion * graph.total();
    if (edge.kind == FlowGraph::Edge::bytes) return kBillion * edge.amount;
    const SliceLength& length = lengths[static_cast<std::size_t>(edge.slice)];
    return static_cast<Amount>(edge.amount) * (length.fixed + length.slope * t);
  }
  bool carries_all(Time t) {
    for (int e = 0; e < graph.network.edges(); ++e)
      graph.network.set_capacity(e, capacity(graph.edges[static_cast<std::size_t>(e)], t));
    return graph.network.run(graph.source(), graph.sink()) == kBillion * graph.total();
  }
  // The first time at which a cut lets everything through: the one that limits the last run ...
  Time cut_passes() const {
    return passes([&](int node) { return graph.network.reached(node); });
  }
  // ... or the one right behind a single remainder, which is a good place to begin.
  Time remainder_passes(std::size_t gpu) const {
    std::vector<bool> side(static_cast<std::size_t>(graph.network.nodes()));
    const auto on_side = [&](int node) -> std::vector<bool>::reference { return side[static_cast<std::size_t>(node)]; };
    on_side(graph.source()) = on_side(graph.remainder(static_cast<int>(gpu))) = true;
    for (int e = 0; e < graph.network.edges(); ++e)  // what it reaches without a limit: its link to the host
      if (graph.edges[static_cast<std::size_t>(e)].kind == FlowGraph::Edge::unlimited && on_side(graph.network.from(e)))
        on_side(graph.network.to(e)) = true;
    return passes(on_side);
  }

  FlowGraph graph;
  std::vector<SliceLength> lengths;

 private:
  template <class Side>
  Time passes(Side&& source_side) const {
    Amount fixed = 0, slope = 0;
    for (int e = 0; e < graph.network.edges(); ++e) {
      if (!source_side(graph.network.from(e)) || source_side(graph.network.to(e))) continue;
      const FlowGraph::Edge& edge = graph.edges[static_cast<std::size_t>(e)];
      fixed += capacity(edge, 0);
      slope += capacity(edge, 1) - capacity(edge, 0);
    }
    if (slope <= 0) throw std::logic_error("a remainder has no way to the host");
    return static_cast<Time>(upward(kBillion * graph.total() - fixed, slope));
  }
};

// Whole bytes, in the slices between the ends: capacities are rounded up, and whole capacities have a whole flow.
std::vector<Transfer> whole_bytes(const PeerLinks& links, const Overflow& overflow, const std::vector<Time>& ends) {
  SlicedGraph sliced(links, overflow, ends, false);
  MaxFlow& network = sliced.graph.network;
  for (int e = 0; e < network.edges(); ++e)
    network.set_capacity(e, upward(sliced.capacity(sliced.graph.edges[static_cast<std::size_t>(e)], 0), kBillion));
  if (network.run(sliced.graph.source(), sliced.graph.sink()) != sliced.graph.total())
    throw std::logic_error("the ends of the transfers contradict each other");
  std::vector<Bytes> flow;
  for (int e = 0; e < network.edges(); ++e) flow.push_back(static_cast<Bytes>(network.flow(e)));
  return sliced.graph.transfers(flow, 1);
}

}  // namespace

FlowPlan plan_least_time(const PeerLinks& links, const Overflow& overflow) {
  FlowPlan plan{{}, std::vector<Time>(overflow.remainder.size())};
  const auto open = [&](std::size_t i) { return overflow.remainder[i] > 0 && plan.ends[i] == 0; };
  for (;;) {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < plan.ends.size(); ++i)
      if (open(i)) left.push_back(i);
    if (left.empty()) break;
    SlicedGraph sliced(links, overflow, plan.ends, true);
    // Newton's steps: a cut that is too small says how long it needs, and nothing below that will do.
    Time t = 0;
    for (std::size_t i : left) t = std::max(t, sliced.remainder_passes(i));
    while (!sliced.carries_all(t)) t = sliced.cut_passes();
    if (left.size() == 1) {
      plan.ends[left.front()] = t;
      break;
    }
    // Those behind the cut that is too small one nanosecond earlier cannot all end earlier.
    sliced.carries_all(t - 1);
    bool some = false;
    for (std::size_t i : left) {
      if (!sliced.graph.network.reached(sliced.graph.remainder(static_cast<int>(i)))) continue;
      plan.ends[i] = t;
      some = true;
    }
    if (!some) throw std::logic_error("no remainder waits for the cut that is too small");
  }
  plan.transfers = whole_bytes(links, overflow, plan.ends);
  return plan;
}

}  // namespace ebb::models
