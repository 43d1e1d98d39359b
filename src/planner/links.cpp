#include "planner/links.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::planner {

Links::Links(const Context& context, const Pacers& pacers, const StagingRings& rings)
    : context_(context), pacers_(pacers), rings_(rings) {
  const Machine& machine = context_.machine;
  for (const LinkSpec& l : machine.links) {
    if (l.chunk == 0 || l.depth < 1) throw std::logic_error("link " + l.name + " has no chunk or no depth");
    links_.emplace_back(l).between_lent_and_host =
        (l.from == kHost && all_lent(machine, l.to)) || (l.to == kHost && all_lent(machine, l.from));
  }
  const int n = context_.tiers();
  const auto node = [&](int i) { return i == n ? kApplication : context_.tier(static_cast<TierIndex>(i)).node; };
  routes_.resize(static_cast<std::size_t>((n + 1) * (n + 1)));
  for (int a = 0; a <= n; ++a)
    for (int b = 0; b <= n; ++b)
      if (a != b) {
        std::vector<Route>& ways = routes_[static_cast<std::size_t>(a * (n + 1) + b)];
        ways = detours(machine, node(a), node(b));
        ways.insert(ways.begin(), planner::route(machine, node(a), node(b)));
      }
}

// The time of the route's slowest link.
Time Links::slowest_of(const Route& route, Bytes bytes) const {
  Time slowest = 0;
  for (int h = 0; h < route.hops; ++h) {
    const Link& link = (*this)[route[h]];
    slowest = std::max(slowest, link.estimate.time_for(bytes));
    if (link.pacer) slowest = std::max(slowest, link.pacer->cost(link.spec.most_bytes_per_s, bytes));
  }
  return slowest;
}

// The time of the direct way and of the detours together, of which each carries what it can meanwhile.
Time Links::together(TierIndex from, TierIndex to, Bytes bytes) const {
  const std::span<const Route> ways = this->ways(from, to);
  const Time direct = slowest_of(ways.front(), bytes);
  if (ways.size() == 1 || direct <= 0) return direct;
  double share = 1.0 / static_cast<double>(direct);  // of the bytes, in a nanosecond
  for (const Route& detour : ways.subspan(1)) {
    const LinkSpec& in = (*this)[detour[0]].spec;
    if (rings_.slots(in.to) == 0) continue;
    Time time = std::max<Time>(1, slowest_of(detour, bytes));
    for (TierIndex t = 0; t < context_.tiers(); ++t)
      if (context_.tier(t).node == in.to) time = std::max(time, pacers_.slowest(t, in, bytes));
    share += 1.0 / static_cast<double>(time);
  }
  return static_cast<Time>(1.0 / share);
}

Time Links::time(TierIndex from, TierIndex to, Bytes bytes) const {
  const Route& route = this->route(from, to);
  const auto at_pace = [&](TierIndex tier, int hop) { return pacers_.slowest(tier, (*this)[route[hop]].spec, bytes); };
  return std::max({together(from, to, bytes), at_pace(from, 0), at_pace(to, route.hops - 1)});
}

bool Links::paced(TierIndex from, TierIndex to, Bytes bytes) const {
  return time(from, to, bytes) > together(from, to, bytes);
}

}  // namespace ebb::planner
