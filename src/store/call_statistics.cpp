#include "store/call_statistics.hpp"

#include <algorithm>

namespace ebb::store {
namespace {

// Of the newest restores alone: a store that is used for days does not grow with them.
template <class List>
void add_newest(List& list, typename List::value_type value) {
  if (list.size() == 2 * Stats::kNewest) list.erase(list.begin(), list.begin() + Stats::kNewest);
  list.push_back(value);
}

}  // namespace

void CallStatistics::count_checkpoint(const Locked& /*locked*/, std::uint64_t bytes) {
  ++counters_.checkpoints;
  counters_.checkpoint_bytes += bytes;
}

void CallStatistics::count_restore(const Locked& /*locked*/, const planner::Answer& answer, std::uint64_t bytes) {
  ++counters_.restores;
  counters_.restore_bytes += bytes;
  add_newest(counters_.found_on, answer.found_on);
  add_newest(counters_.prefetch_distance, answer.distance);
  if (answer.found_on != planner::kNoTier) ++hits_[static_cast<std::size_t>(answer.found_on)];
  if (!port_.in_memory(answer.found_on)) ++counters_.misses;
}

void CallStatistics::count_blocked(const Locked& /*locked*/, Blocked rest, planner::Time started, planner::Time copying,
                                   planner::Time until) {
  blocked_[static_cast<std::size_t>(Blocked::copy)] += copying;
  blocked_[static_cast<std::size_t>(rest)] += std::max<planner::Time>(0, until - started - copying);
}

Stats CallStatistics::stats(const Locked& locked) const {
  Stats stats = counters_;
  const planner::Planner& planner = port_.planner(locked);
  const planner::Machine& machine = port_.machine();
  for (std::size_t tier = 0; tier < machine.tiers.size(); ++tier) {
    const planner::TierUse use = planner.use(static_cast<planner::TierIndex>(tier));
    stats.tiers.push_back({machine.tiers[tier].name,
                           use.capacity,
                           use.used,
                           use.largest_gap,
                           use.replicas,
                           use.evictions,
                           hits_[tier],
                           {}});
  }
  for (std::size_t link = 0; link < machine.links.size(); ++link) {
    const planner::LinkUse use = planner.use(static_cast<int>(link));
    stats.links.push_back({machine.links[link].name, use.bytes, use.transfers, static_cast<double>(use.busy) * 1e-9,
                           use.estimate_bytes_per_s, use.failures});
  }
  constexpr std::array causes = {"copy", "room", "transfer", "wait"};
  for (std::size_t cause = 0; cause < causes.size(); ++cause) {
    stats.blocked_s[causes[cause]] = static_cast<double>(blocked_[cause]) * 1e-9;
  }
  const planner::Counters& counters = planner.counters();
  stats.direct_writes = counters.direct_writes;
  stats.direct_reads = counters.direct_reads;
  stats.dropped_flushes = counters.dropped_flushes;
  stats.relayed = counters.relayed;
  stats.retries = counters.retries;
  stats.failures = counters.failures;
  return stats;
}

}  // namespace ebb::store
