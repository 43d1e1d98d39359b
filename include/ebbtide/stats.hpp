#pragma once
// Every counter needed to explain a run.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ebb {

/// How a tier's memory is allocated, and how much of it so far. All zero for a tier of files, except `trouble`, which
/// is the staging ring's.
struct ArenaStats {
  std::string strategy;       ///< "direct", "incremental", "mapped"; empty: files
  std::uint64_t ready = 0;    ///< bytes usable now, a prefix of the memory
  std::uint64_t limit = 0;    ///< bytes that will ever be usable: less than the capacity when memory ran out
  std::uint64_t touched = 0;  ///< host memory: bytes whose pages are present
  std::uint64_t pinned = 0;   ///< host memory: bytes registered with the GPU
  std::uint64_t mapped = 0;   ///< device memory behind the addresses
  std::uint64_t piece = 0;    ///< the most bytes that one registration takes, as measured
  std::uint32_t pieces = 0;   ///< registered so far
  bool huge_pages = false;    ///< the system gives huge pages where they are requested
  std::string trouble;        ///< what went wrong, each problem once; empty: nothing
};

struct TierStats {
  std::string name;               ///< "device", "host", "local"
  std::uint64_t capacity = 0;     ///< bytes
  std::uint64_t used = 0;         ///< bytes held by replicas now
  std::uint64_t largest_gap = 0;  ///< bytes
  std::uint64_t replicas = 0;
  std::uint64_t evictions = 0;  ///< replicas removed to make room
  std::uint64_t hits = 0;       ///< restores that found their fastest complete replica here
  ArenaStats arena = {};
};

struct LinkStats {
  std::string name;  ///< "app>device", "device>host", "host>local", ...
  std::uint64_t bytes = 0;
  std::uint64_t transfers = 0;      ///< chunks
  double busy_s = 0;                ///< time with at least one chunk in flight
  double estimate_bytes_per_s = 0;  ///< the planner's running average
  std::uint64_t failures = 0;
};

/// Of a store in a node's pool. "Last": the checkpoints since all was durable before; t1: the first of them began, t2:
/// the last one returned, t3: all of them were durable (wag-dbi sec. IV.B).
struct NodeStats {
  std::uint64_t bytes_handed_over = 0, bytes_written = 0;  ///< by this process to the agent, and by that to the store
  std::uint64_t checkpoints_handed_over = 0, checkpoints_written = 0;
  std::uint64_t agents = 0;          ///< that served this process, one after the other
  bool agent_program = false;        ///< false: a thread of one of the processes
  std::uint64_t bytes_borrowed = 0;  ///< now, of what other processes of the pool do not use
  std::uint64_t bytes_beside = 0;    ///< now, of the whole pool: in the page cache, and not on stable storage yet
  double last_blocked_s = 0;         ///< t2 - t1
  double last_durable_s = 0;         ///< t3 - t1
  double last_drain_s = 0;           ///< t3 - t2
};

/// Memory of one process that another one uses.
struct LeaseInfo {
  int lender = 0, borrower = 0;  ///< processes; a lender of 0 has ended
  std::uint64_t bytes = 0;
  std::string state;  ///< "lent", "recalled", "overdue", "orphaned": docs/leases.md
};

/// Of a store that lends memory or borrows it, now.
struct LeaseStats {
  std::uint64_t offered = 0;   ///< that others may use
  double share = 1;            ///< of the link's rate, at which others may copy to and from that (Options::lend_share)
  std::uint64_t lent = 0;      ///< that they have, until it can be allocated here again
  std::uint64_t overdue = 0;   ///< of that, what was not returned in time
  std::uint64_t borrowed = 0;  ///< that this store has of others
  std::vector<LeaseInfo> leases = {};
};

struct Stats {
  std::vector<TierStats> tiers;
  std::vector<LinkStats> links;
  std::map<std::string, double>
      blocked_s;  ///< time that calls were blocked, by cause: "copy", "room", "transfer", "wait"
  std::uint64_t checkpoints = 0, restores = 0;
  std::uint64_t checkpoint_bytes = 0, restore_bytes = 0;
  std::uint64_t misses = 0;                           ///< restores that found no complete replica in a memory tier
  std::uint64_t direct_writes = 0, direct_reads = 0;  ///< requests that bypassed the faster tiers
  std::uint64_t dropped_flushes = 0;  ///< flushes cancelled because their checkpoint was consumed or dropped
  std::uint64_t relayed = 0;          ///< chunks that went between this device and the host through a lender's memory
  std::uint64_t retries = 0, failures = 0;
  static constexpr std::size_t kNewest = 1 << 14;
  /// At each restore (of at least the newest `kNewest`): hinted successors that were complete on the fastest tier.
  std::vector<std::uint32_t> prefetch_distance;
  std::vector<std::int8_t> found_on;      ///< likewise: index of the fastest tier with a complete replica, -1: none
  std::optional<NodeStats> node = {};     ///< none: not in a node's pool
  std::optional<LeaseStats> leases = {};  ///< none: it neither lends nor borrows
  std::string settings;                   ///< the sizes and engines chosen, as in the log line at open
};

}  // namespace ebb
