#include "models/max_flow.hpp"

#include <algorithm>
#include <utility>

namespace ebb::models {

int MaxFlow::add_node() {
  first_.push_back(-1);
  return nodes() - 1;
}

int MaxFlow::add_edge(int from, int to) {
  const int edge = edges();
  for (const auto& [tail, head] : {std::pair{from, to}, std::pair{to, from}}) {
    to_.push_back(head);
    next_.push_back(first_[static_cast<std::size_t>(tail)]);
    first_[static_cast<std::size_t>(tail)] = static_cast<int>(to_.size()) - 1;
  }
  capacity_.push_back(0);
  return edge;
}

MaxFlow::Amount MaxFlow::run(int source, int sink) {
  left_.resize(to_.size());
  for (std::size_t e = 0; e < capacity_.size(); ++e) {
    left_[2 * e] = capacity_[e];
    left_[2 * e + 1] = 0;
  }
  Amount most = 0, carried = 0;
  for (int arc = first_[static_cast<std::size_t>(source)]; arc >= 0; arc = next_[static_cast<std::size_t>(arc)])
    most += left_[static_cast<std::size_t>(arc)];
  while (find_levels(source, sink)) {
    at_ = first_;
    carried += push(source, sink, most - carried);
  }
  return carried;
}

// Each node's distance from the source over arcs with something left; -1: none.
bool MaxFlow::find_levels(int source, int sink) {
  level_.assign(first_.size(), -1);
  queue_.clear();
  queue_.push_back(source);
  level_[static_cast<std::size_t>(source)] = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const auto node = static_cast<std::size_t>(queue_[head]);
    for (int arc = first_[node]; arc >= 0; arc = next_[static_cast<std::size_t>(arc)]) {
      const auto to = static_cast<std::size_t>(to_[static_cast<std::size_t>(arc)]);
      if (left_[static_cast<std::size_t>(arc)] == 0 || level_[to] >= 0) continue;
      level_[to] = level_[node] + 1;
      if (static_cast<int>(to) == sink) return true;  // what is farther is on no shortest path
      queue_.push_back(static_cast<int>(to));
    }
  }
  return false;
}

// Pushes up to `most` from a node towards the sink, each hop one level on.
MaxFlow::Amount MaxFlow::push(int node, int sink, Amount most) {
  if (node == sink) return most;
  Amount pushed = 0;
  int& at = at_[static_cast<std::size_t>(node)];
  for (; at >= 0; at = next_[static_cast<std::size_t>(at)]) {
    const auto arc = static_cast<std::size_t>(at);
    if (left_[arc] == 0 || level_[static_cast<std::size_t>(to_[arc])] != level_[static_cast<std::size_t>(node)] + 1)
      continue;
    const Amount part = push(to_[arc], sink, std::min(most - pushed, left_[arc]));
    left_[arc] -= part;
    left_[arc ^ 1] += part;
    pushed += part;
    if (pushed == most) break;  // the arc may have more
  }
  return pushed;
}

}  // namespace ebb::models
