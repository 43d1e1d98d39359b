#include "objects.hpp"

namespace ebb::python {

namespace {

nb::dict to_dict(const ArenaStats& arena) {
  nb::dict one;
  one["strategy"] = nb::str(arena.strategy.c_str());
  one["ready"] = arena.ready;
  one["limit"] = arena.limit;
  one["touched"] = arena.touched;
  one["pinned"] = arena.pinned;
  one["mapped"] = arena.mapped;
  one["piece"] = arena.piece;
  one["pieces"] = arena.pieces;
  one["huge_pages"] = arena.huge_pages;
  one["trouble"] = nb::str(arena.trouble.c_str());
  return one;
}

}  // namespace

nb::dict to_dict(const LeaseInfo& lease) {
  nb::dict one;
  one["lender"] = lease.lender;
  one["borrower"] = lease.borrower;
  one["bytes"] = lease.bytes;
  one["state"] = nb::str(lease.state.c_str());
  return one;
}

nb::dict to_dict(const Stats& stats, const SnapshotStats& snapshots) {
  nb::dict result, blocked;
  nb::list tiers, links;
  for (const auto& tier : stats.tiers) {
    nb::dict one;
    one["name"] = nb::str(tier.name.c_str());
    one["capacity"] = tier.capacity;
    one["used"] = tier.used;
    one["largest_gap"] = tier.largest_gap;
    one["replicas"] = tier.replicas;
    one["evictions"] = tier.evictions;
    one["hits"] = tier.hits;
    one["arena"] = to_dict(tier.arena);
    tiers.append(one);
  }
  for (const auto& link : stats.links) {
    nb::dict one;
    one["name"] = nb::str(link.name.c_str());
    one["bytes"] = link.bytes;
    one["transfers"] = link.transfers;
    one["busy_s"] = link.busy_s;
    one["estimate_bytes_per_s"] = link.estimate_bytes_per_s;
    one["failures"] = link.failures;
    links.append(one);
  }
  for (const auto& [cause, seconds] : stats.blocked_s) blocked[cause.c_str()] = seconds;
  nb::list distances, found;
  for (const auto distance : stats.prefetch_distance) distances.append(distance);
  for (const auto index : stats.found_on) found.append(static_cast<int>(index));
  result["tiers"] = tiers;
  result["links"] = links;
  result["blocked_s"] = blocked;
  result["checkpoints"] = stats.checkpoints;
  result["restores"] = stats.restores;
  result["checkpoint_bytes"] = stats.checkpoint_bytes;
  result["restore_bytes"] = stats.restore_bytes;
  result["misses"] = stats.misses;
  result["direct_writes"] = stats.direct_writes;
  result["direct_reads"] = stats.direct_reads;
  result["dropped_flushes"] = stats.dropped_flushes;
  result["relayed"] = stats.relayed;
  result["retries"] = stats.retries;
  result["failures"] = stats.failures;
  result["prefetch_distance"] = distances;
  result["found_on"] = found;
  if (stats.node) {
    nb::dict node;
    node["bytes_handed_over"] = stats.node->bytes_handed_over;
    node["bytes_written"] = stats.node->bytes_written;
    node["checkpoints_handed_over"] = stats.node->checkpoints_handed_over;
    node["checkpoints_written"] = stats.node->checkpoints_written;
    node["agents"] = stats.node->agents;
    node["agent_program"] = stats.node->agent_program;
    node["bytes_borrowed"] = stats.node->bytes_borrowed;
    node["last_blocked_s"] = stats.node->last_blocked_s;
    node["last_durable_s"] = stats.node->last_durable_s;
    node["last_drain_s"] = stats.node->last_drain_s;
    result["node"] = node;
  }
  if (stats.leases) {
    nb::dict leases;
    leases["offered"] = stats.leases->offered;
    leases["share"] = stats.leases->share;
    leases["lent"] = stats.leases->lent;
    leases["overdue"] = stats.leases->overdue;
    leases["borrowed"] = stats.leases->borrowed;
    nb::list all;
    for (const LeaseInfo& lease : stats.leases->leases) all.append(to_dict(lease));
    leases["leases"] = all;
    result["leases"] = leases;
  }
  nb::dict cuts;
  cuts["zones"] = snapshots.zones;
  cuts["dirty"] = snapshots.dirty;
  cuts["snapshots"] = snapshots.snapshots;
  cuts["failures"] = snapshots.failures;
  cuts["faults"] = snapshots.faults;
  cuts["duplicates"] = snapshots.duplicates;
  cuts["blocked_s"] = snapshots.blocked_s;
  cuts["bytes_gathered"] = snapshots.bytes_gathered;
  result["snapshots"] = cuts;
  result["settings"] = nb::str(stats.settings.c_str());
  return result;
}

}  // namespace ebb::python
