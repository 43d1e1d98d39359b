#pragma once
// The counters of a store by name. C's JSON and ebb_stat(), and Python's dictionaries, are made from these tables.
#include <string_view>
#include <tuple>

#include "ebbtide/snapshot.hpp"
#include "ebbtide/stats.hpp"

namespace ebb {

template <class Owner, class T>
struct Counter {
  std::string_view name;
  T Owner::* field;
};

/// Of a struct of statistics, in the order in which they are shown.
template <class Owner>
struct Counters;

#define EBB_COUNTER(field) \
  Counter { #field, &Owner::field }
#define EBB_COUNTERS(type, ...)                          \
  template <>                                            \
  struct Counters<type> {                                \
    using Owner = type;                                  \
    static constexpr auto all = std::tuple{__VA_ARGS__}; \
  }
EBB_COUNTERS(ArenaStats, EBB_COUNTER(ready), EBB_COUNTER(limit), EBB_COUNTER(touched), EBB_COUNTER(pinned),
             EBB_COUNTER(mapped), EBB_COUNTER(piece), EBB_COUNTER(pieces), EBB_COUNTER(huge_pages));
EBB_COUNTERS(TierStats, EBB_COUNTER(capacity), EBB_COUNTER(used), EBB_COUNTER(largest_gap), EBB_COUNTER(replicas),
             EBB_COUNTER(evictions), EBB_COUNTER(hits));
EBB_COUNTERS(LinkStats, EBB_COUNTER(bytes), EBB_COUNTER(transfers), EBB_COUNTER(busy_s),
             EBB_COUNTER(estimate_bytes_per_s), EBB_COUNTER(failures));
EBB_COUNTERS(NodeStats, EBB_COUNTER(bytes_handed_over), EBB_COUNTER(bytes_written),
             EBB_COUNTER(checkpoints_handed_over), EBB_COUNTER(checkpoints_written), EBB_COUNTER(agents),
             EBB_COUNTER(agent_program), EBB_COUNTER(bytes_borrowed), EBB_COUNTER(bytes_beside),
             EBB_COUNTER(last_blocked_s), EBB_COUNTER(last_durable_s), EBB_COUNTER(last_drain_s));
EBB_COUNTERS(LeaseInfo, EBB_COUNTER(lender), EBB_COUNTER(borrower), EBB_COUNTER(bytes));
EBB_COUNTERS(LeaseStats, EBB_COUNTER(offered), EBB_COUNTER(share), EBB_COUNTER(lent), EBB_COUNTER(overdue),
             EBB_COUNTER(borrowed));
EBB_COUNTERS(Stats, EBB_COUNTER(checkpoints), EBB_COUNTER(restores), EBB_COUNTER(checkpoint_bytes),
             EBB_COUNTER(restore_bytes), EBB_COUNTER(misses), EBB_COUNTER(direct_writes), EBB_COUNTER(direct_reads),
             EBB_COUNTER(dropped_flushes), EBB_COUNTER(relayed), EBB_COUNTER(retries), EBB_COUNTER(failures));
EBB_COUNTERS(SnapshotStats, EBB_COUNTER(zones), EBB_COUNTER(dirty), EBB_COUNTER(snapshots), EBB_COUNTER(failures),
             EBB_COUNTER(faults), EBB_COUNTER(duplicates), EBB_COUNTER(blocked_s), EBB_COUNTER(bytes_gathered));
#undef EBB_COUNTERS
#undef EBB_COUNTER

/// Calls `visit(name, value)` for each.
template <class Owner, class Visit>
void visit_counters(const Owner& from, Visit&& visit) {
  std::apply([&](const auto&... one) { (visit(one.name, from.*one.field), ...); }, Counters<Owner>::all);
}

}  // namespace ebb
