#include <algorithm>

#include "tests/sim/random_run.hpp"

namespace ebb::sim::testing {
namespace {

using planner::Reason;

// A link's rate when every link of its groups runs.
double rate_of(const MachineModel& machine, int link) {
  const LinkModel& l = machine.links[static_cast<std::size_t>(link)];
  const auto shares = [&](const LinkModel& other) {
    return std::ranges::find_first_of(l.groups, other.groups) != l.groups.end();
  };
  const auto sharers = std::ranges::count_if(machine.links, shares);
  return static_cast<double>(l.bytes_per_s) / static_cast<double>(std::max<std::ptrdiff_t>(1, sharers));
}

// Seconds that `bytes` take over the slowest link of a route, including the latency of each of its chunks.
double route_time(const MachineModel& machine, planner::NodeIndex from, planner::NodeIndex to, double bytes) {
  const planner::Machine& p = machine.planner;
  const planner::Route r = planner::route(p, from, to);
  double worst = 0, latency = 0;
  for (std::size_t h = 0; h < static_cast<std::size_t>(r.hops); ++h) {
    const planner::LinkSpec& spec = p.links[static_cast<std::size_t>(r.link[h])];
    worst = std::max(worst, bytes / rate_of(machine, r.link[h]));
    latency +=
        (bytes / static_cast<double>(std::min(spec.chunk, p.ring_slot)) + 1) * static_cast<double>(spec.latency) * 1e-9;
  }
  return worst + latency;
}

}  // namespace

double direct_time(const RandomCase& c, double bytes) {
  double worst = 0;
  for (std::size_t t = 0; t < c.machine.planner.tiers.size(); ++t) {
    const planner::NodeIndex tier = c.machine.planner.tiers[t].node;
    worst = std::max({worst, route_time(c.machine, planner::kApplication, tier, bytes),
                      route_time(c.machine, tier, planner::kApplication, bytes)});
    // Where room is made by moving another to the tier below, over that link.
    if (t > 0) worst = std::max(worst, route_time(c.machine, c.machine.planner.tiers[t - 1].node, tier, bytes));
  }
  return worst;
}

// The longest time of a call that succeeded, in units of what it may take:
//   2 x sum of the direct times of the calls that were open with it + what each link already holds (`depth` chunks,
//   which nothing overtakes) + its own timeout (until then it may wait for another thread to make room), and that of
//   the calls for the same version, whose write it waits for,
// where a call's direct time is that of its bytes over the slowest link of any route that they, or what makes room for
// them, may have to take: application to and from each tier, and each tier to the one below; at that link's share of
// its group, with the latency of each chunk.
double worst_delay(const RandomCase& c, const Result& result) {
  double chunks = 0;
  for (std::size_t l = 0; l < c.machine.links.size(); ++l) {
    const planner::LinkSpec& spec = c.machine.planner.links[l];
    chunks += spec.depth * (static_cast<double>(spec.chunk) / rate_of(c.machine, static_cast<int>(l)) +
                            static_cast<double>(spec.latency) * 1e-9);
  }
  double worst = 0;
  for (const Call& call : result.calls) {
    if (call.reason != Reason::ok || (call.kind != Op::Kind::checkpoint && call.kind != Op::Kind::restore)) continue;
    double allowed = chunks + static_cast<double>(call.timeout) * 1e-9;
    for (const Call& other : result.calls)
      if (other.begun <= call.ended && other.ended >= call.begun) {
        allowed += 2 * direct_time(c, static_cast<double>(other.bytes));
        if (other.history == call.history && other.version == call.version && &other != &call)
          allowed += static_cast<double>(other.timeout) * 1e-9;
      }
    const double took = static_cast<double>(call.ended - call.begun) * 1e-9;
    worst = std::max(worst, took / allowed);
  }
  return worst;
}

}  // namespace ebb::sim::testing
