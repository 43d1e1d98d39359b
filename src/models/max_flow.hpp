#pragma once
// The most that a network of capacities carries, and the cut that limits it (Dinic's algorithm).
#include <cstdint>
#include <vector>

namespace ebb::models {

// Not thread-safe. Pure: the same edges in the same order give the same flow.
class MaxFlow {
 public:
  __extension__ typedef __int128 Amount;

  explicit MaxFlow(int nodes = 0) : first_(static_cast<std::size_t>(nodes), -1) {}
  int add_node();
  int add_edge(int from, int to);  // its number, counted from 0; its capacity is 0

  void set_capacity(int edge, Amount capacity) { capacity_[static_cast<std::size_t>(edge)] = capacity; }
  // A flow of the largest value, from nothing. Its paths have few hops: the shortest are filled first.
  Amount run(int source, int sink);
  // The flow over an edge in the last run.
  Amount flow(int edge) const { return left_[2 * static_cast<std::size_t>(edge) + 1]; }
  // Whether more could still reach the node: the source's side of the least cut that is nearest to the source.
  bool reached(int node) const { return level_[static_cast<std::size_t>(node)] >= 0; }

  int nodes() const { return static_cast<int>(first_.size()); }
  int edges() const { return static_cast<int>(capacity_.size()); }
  int from(int edge) const { return to_[2 * static_cast<std::size_t>(edge) + 1]; }
  int to(int edge) const { return to_[2 * static_cast<std::size_t>(edge)]; }

 private:
  bool find_levels(int source, int sink);
  Amount push(int node, int sink, Amount most);

  // Arc 2e is edge e, arc 2e + 1 goes back along it; the arcs out of a node are a list.
  std::vector<int> first_, next_, to_;
  std::vector<Amount> capacity_, left_;
  std::vector<int> level_, at_, queue_;
};

}  // namespace ebb::models
