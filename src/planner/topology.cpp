#include "planner/topology.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::planner {
namespace {

constexpr double kMemoryRate = 8e9, kFileRate = 1.5e9;

// Which link leads to each node on the way from `from`, and over how many.
struct Reached {
  int by = -1;
  int hops = -1;
};

std::vector<Reached> reach(const Machine& machine, NodeIndex from) {
  std::vector<Reached> reached(machine.nodes.size());
  reached.at(static_cast<std::size_t>(from)).hops = 0;
  std::vector<NodeIndex> border{from};
  for (int hops = 1; !border.empty(); ++hops) {
    std::vector<NodeIndex> next;
    for (std::size_t l = 0; l < machine.links.size(); ++l) {
      const LinkSpec& link = machine.links[l];
      if (std::ranges::find(border, link.from) == border.end()) continue;
      if (link.from != from && machine.nodes[static_cast<std::size_t>(link.from)].staging == 0) continue;
      Reached& there = reached.at(static_cast<std::size_t>(link.to));
      if (there.hops >= 0) continue;
      there = {static_cast<int>(l), hops};
      next.push_back(link.to);
    }
    border = std::move(next);
  }
  return reached;
}

}  // namespace

void connect(Machine& machine, int staging) {
  machine.nodes = {{"app"}, {"host", staging}};
  machine.links.clear();
  machine.resources.clear();
  std::vector<Medium> media{Medium::device, Medium::host};  // of the nodes; the application is as near as a device
  int host_tiers = 0;
  for (TierSpec& tier : machine.tiers) {
    tier.node = kHost;
    if (tier.medium == Medium::host) {
      ++host_tiers;
      continue;
    }
    tier.node = static_cast<NodeIndex>(machine.nodes.size());
    machine.nodes.push_back({tier.name});
    media.push_back(tier.medium);
  }
  const auto link = [&](std::size_t from, std::size_t to, double rate) -> LinkSpec& {
    LinkSpec& made = machine.links.emplace_back();
    made.name = machine.nodes[from].name + ">" + machine.nodes[to].name;
    made.from = static_cast<NodeIndex>(from);
    made.to = static_cast<NodeIndex>(to);
    made.bytes_per_s = rate;
    return made;
  };
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    for (std::size_t j = i + 1; j < machine.nodes.size(); ++j) {
      const bool file = media[i] == Medium::file || media[j] == Medium::file;
      if (file && i != kHost && j != kHost) continue;
      for (const auto& [from, to] : {std::pair{i, j}, std::pair{j, i}}) {
        LinkSpec& made = link(from, to, file ? kFileRate : kMemoryRate);
        if (file) made.resources.push_back(static_cast<int>(machine.resources.size()));
      }
      if (file) machine.resources.push_back({machine.nodes[j].name});
    }
  if (host_tiers > 1) link(kHost, kHost, kMemoryRate);
}

bool all_lent(const Machine& machine, NodeIndex node) {
  return std::ranges::any_of(machine.tiers, [&](const TierSpec& tier) {
    return tier.node == node && tier.medium != Medium::file && tier.capacity == 0;
  });
}

TierIndex first_keeping(const Machine& machine) {
  std::size_t first = machine.tiers.size();
  while (!machine.ephemeral && first > 0 && machine.tiers[first - 1].medium == Medium::file) --first;
  return static_cast<TierIndex>(first);
}

bool on_file(const Machine& machine, NodeIndex node) {
  return std::ranges::any_of(machine.tiers,
                             [&](const TierSpec& tier) { return tier.node == node && tier.medium == Medium::file; });
}

int find_link(const std::vector<LinkSpec>& links, std::string_view name) {
  const auto found = std::ranges::find(links, name, &LinkSpec::name);
  return found == links.end() ? -1 : static_cast<int>(found - links.begin());
}

Route route(const Machine& machine, NodeIndex from, NodeIndex to) {
  Route out;
  if (from == to) {  // from one tier of a node to another
    for (std::size_t l = 0; l < machine.links.size(); ++l)
      if (machine.links[l].from == from && machine.links[l].to == to) return {1, {static_cast<int>(l)}};
  } else {
    const std::vector<Reached> reached = reach(machine, from);
    out.hops = reached.at(static_cast<std::size_t>(to)).hops;
    for (NodeIndex at = to; out.hops <= kMaxHops && at != from && out.hops > 0;) {
      const Reached& there = reached[static_cast<std::size_t>(at)];
      out.link[static_cast<std::size_t>(there.hops - 1)] = there.by;
      at = machine.links[static_cast<std::size_t>(there.by)].from;
    }
  }
  if (out.hops >= 1 && out.hops <= kMaxHops) return out;
  const auto name = [&](NodeIndex node) { return machine.nodes.at(static_cast<std::size_t>(node)).name; };
  throw std::logic_error("no route of at most " + std::to_string(kMaxHops) + " links leads from " + name(from) +
                         " to " + name(to));
}

std::vector<Route> detours(const Machine& machine, NodeIndex from, NodeIndex to) {
  const auto link = [&](NodeIndex a, NodeIndex b) {
    const auto found = std::ranges::find_if(machine.links, [&](const LinkSpec& l) { return l.from == a && l.to == b; });
    return found == machine.links.end() ? -1 : static_cast<int>(found - machine.links.begin());
  };
  std::vector<Route> out;
  if (from == to || from == kApplication || to == kApplication || link(from, to) < 0) return out;
  for (NodeIndex by = 0; by < static_cast<NodeIndex>(machine.nodes.size()); ++by) {
    if (by == from || by == to || by == kHost || machine.nodes[static_cast<std::size_t>(by)].staging == 0) continue;
    if (const int there = link(from, by), on = link(by, to); there >= 0 && on >= 0) out.push_back({2, {there, on}});
  }
  return out;
}

std::vector<NodeIndex> nodes_passed(const Machine& machine) {
  std::vector<NodeIndex> ends{kApplication}, passed;
  for (const TierSpec& tier : machine.tiers) ends.push_back(tier.node);
  for (std::size_t i = 0; i < ends.size(); ++i)
    for (std::size_t j = 0; j < ends.size(); ++j) {
      if (i == j) continue;
      std::vector<Route> ways = detours(machine, ends[i], ends[j]);
      ways.push_back(route(machine, ends[i], ends[j]));
      for (const Route& r : ways)
        for (int hop = 0; hop + 1 < r.hops; ++hop)
          passed.push_back(machine.links[static_cast<std::size_t>(r.link[static_cast<std::size_t>(hop)])].to);
    }
  std::ranges::sort(passed);
  passed.erase(std::ranges::unique(passed).begin(), passed.end());
  std::erase_if(passed, [&](NodeIndex node) { return all_lent(machine, node); });
  return passed;
}

}  // namespace ebb::planner
