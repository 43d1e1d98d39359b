#include "ebbtide/counters.hpp"
#include "objects.hpp"

namespace ebb::python {

namespace {

template <class T>
void put_counters(nb::dict& into, const T& from) {
  visit_counters(from, [&](std::string_view name, auto value) { into[nb::str(name.data(), name.size())] = value; });
}

nb::dict to_dict(const ArenaStats& arena) {
  nb::dict one;
  one["strategy"] = nb::str(arena.strategy.c_str());
  put_counters(one, arena);
  one["trouble"] = nb::str(arena.trouble.c_str());
  return one;
}

}  // namespace

nb::dict to_dict(const LeaseInfo& lease) {
  nb::dict one;
  put_counters(one, lease);
  one["state"] = nb::str(lease.state.c_str());
  return one;
}

nb::dict to_dict(const Stats& stats, const SnapshotStats& snapshots) {
  nb::dict result, blocked;
  nb::list tiers, links;
  for (const auto& tier : stats.tiers) {
    nb::dict one;
    one["name"] = nb::str(tier.name.c_str());
    put_counters(one, tier);
    one["arena"] = to_dict(tier.arena);
    tiers.append(one);
  }
  for (const auto& link : stats.links) {
    nb::dict one;
    one["name"] = nb::str(link.name.c_str());
    put_counters(one, link);
    links.append(one);
  }
  for (const auto& [cause, seconds] : stats.blocked_s) blocked[cause.c_str()] = seconds;
  nb::list distances, found;
  for (const auto distance : stats.prefetch_distance) distances.append(distance);
  for (const auto index : stats.found_on) found.append(static_cast<int>(index));
  result["tiers"] = tiers;
  result["links"] = links;
  result["blocked_s"] = blocked;
  put_counters(result, stats);
  result["prefetch_distance"] = distances;
  result["found_on"] = found;
  if (stats.node) {
    nb::dict node;
    put_counters(node, *stats.node);
    result["node"] = node;
  }
  if (stats.leases) {
    nb::dict leases;
    put_counters(leases, *stats.leases);
    nb::list all;
    for (const LeaseInfo& lease : stats.leases->leases) all.append(to_dict(lease));
    leases["leases"] = all;
    result["leases"] = leases;
  }
  nb::dict cuts;
  put_counters(cuts, snapshots);
  result["snapshots"] = cuts;
  result["settings"] = nb::str(stats.settings.c_str());
  return result;
}

}  // namespace ebb::python
