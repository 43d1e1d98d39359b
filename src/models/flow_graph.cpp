#include "models/flow_graph.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace ebb::models {

FlowGraph::FlowGraph(const PeerLinks& links, const Overflow& overflow)
    : network(2 + 2 * links.gpus()), links_(links), overflow_(overflow) {
  for (int i = 0; i < links.gpus(); ++i) {
    add(source(), remainder(i), {Edge::bytes, overflow.remainder[gpu_index(i)]});
    total_ += overflow.remainder[gpu_index(i)];
  }
  for (int j = 0; j < links.gpus(); ++j) add(spare(j), sink(), {Edge::bytes, overflow.spare[gpu_index(j)]});
}

int FlowGraph::add(int from, int to, Edge edge) {
  edges.push_back(edge);
  return network.add_edge(from, to);
}

// The node behind a limit of what leaves this one.
int FlowGraph::limited(int node, Rate rate, int slice) {
  if (rate == 0) return node;
  const int behind = network.add_node();
  add(node, behind, {Edge::rate, rate, slice});
  return behind;
}

void FlowGraph::add_slice(const std::vector<bool>& present) {
  const int n = links_.gpus(), number = static_cast<int>(slices_.size());
  Slice slice{std::vector<int>(gpu_index(n), -1), std::vector<int>(gpu_index(n), -1), {}};
  // From its end: the host, the links to it, and what comes in to each GPU.
  const int memory = network.add_node();
  const Rate all = links_.host_memory;
  add(memory, sink(), all == 0 ? Edge{} : Edge{Edge::rate, all, number});
  std::vector<int> to_host(gpu_index(n), -1), in(gpu_index(n), -1);
  for (int j = 0; j < n; ++j) {
    if (!links_.relays && !present[gpu_index(j)]) continue;
    to_host[gpu_index(j)] = network.add_node();
    add(to_host[gpu_index(j)], memory, {Edge::rate, links_.host[gpu_index(j)], number});
  }
  for (int j = 0; j < n; ++j) {
    if (!links_.relays && overflow_.spare[gpu_index(j)] == 0) continue;
    in[gpu_index(j)] = network.add_node();
    const int behind = limited(in[gpu_index(j)], links_.ingress[gpu_index(j)], number);
    if (overflow_.spare[gpu_index(j)] > 0) slice.to_spare[gpu_index(j)] = add(behind, spare(j), {});
    if (links_.relays) add(behind, to_host[gpu_index(j)], {});
  }
  for (int i = 0; i < n; ++i) {
    if (!present[gpu_index(i)]) continue;
    slice.own_host[gpu_index(i)] = add(remainder(i), to_host[gpu_index(i)], {});
    const int out = limited(remainder(i), links_.egress[gpu_index(i)], number);
    for (int j = 0; j < n; ++j)
      if (j != i && in[gpu_index(j)] >= 0 && links_.pair(i, j) > 0)
        slice.ways.push_back({i, j, add(out, in[gpu_index(j)], {Edge::rate, links_.pair(i, j), number})});
  }
  slices_.push_back(std::move(slice));
}

std::vector<Transfer> FlowGraph::transfers(const std::vector<Bytes>& flow, Bytes unit) const {
  std::map<std::tuple<int, RouteKind, int>, Bytes> bytes;
  for (const Slice& slice : slices_) {
    for (int i = 0; i < links_.gpus(); ++i)
      if (slice.own_host[gpu_index(i)] >= 0)
        bytes[{i, RouteKind::host, -1}] += unit * flow[gpu_index(slice.own_host[gpu_index(i)])];
    // What comes in to a GPU fills its memory in the order of the sources; the rest goes on.
    std::vector<Bytes> held(gpu_index(links_.gpus()));
    for (int j = 0; j < links_.gpus(); ++j)
      if (slice.to_spare[gpu_index(j)] >= 0) held[gpu_index(j)] = flow[gpu_index(slice.to_spare[gpu_index(j)])];
    for (const Way& way : slice.ways) {
      const Bytes whole = flow[gpu_index(way.edge)], part = std::min(whole, held[gpu_index(way.to)]);
      held[gpu_index(way.to)] -= part;
      bytes[{way.from, RouteKind::peer, way.to}] += unit * part;
      bytes[{way.from, RouteKind::relay, way.to}] += unit * (whole - part);
    }
  }
  std::vector<Transfer> out;
  for (const auto& [route, amount] : bytes)
    if (amount > 0) out.push_back({std::get<0>(route), std::get<1>(route), std::get<2>(route), amount});
  return out;
}

}  // namespace ebb::models
