// What a program of 0.1.0 may have written with <ebbtide/stats.hpp> alone.
#include <ebbtide/stats.hpp>

bool use_stats() {
  ebb::ArenaStats arena{.strategy = "direct",
                        .ready = 1,
                        .limit = 1,
                        .touched = 1,
                        .pinned = 1,
                        .mapped = 1,
                        .piece = 1,
                        .pieces = 1,
                        .huge_pages = false,
                        .sequential = false,
                        .trouble = ""};
  ebb::TierStats tier{.name = "host",
                      .capacity = 1,
                      .used = 1,
                      .largest_gap = 1,
                      .replicas = 1,
                      .evictions = 1,
                      .hits = 1,
                      .arena = arena};
  ebb::LinkStats link{
      .name = "device>host", .bytes = 1, .transfers = 1, .busy_s = 0.5, .estimate_bytes_per_s = 1e9, .failures = 0};
  ebb::Stats stats{.tiers = {tier},
                   .links = {link},
                   .blocked_s = {{"copy", 0.5}},
                   .checkpoints = 1,
                   .restores = 1,
                   .checkpoint_bytes = 1,
                   .restore_bytes = 1,
                   .misses = 0,
                   .direct_writes = 0,
                   .direct_reads = 0,
                   .dropped_flushes = 0,
                   .retries = 0,
                   .failures = 0,
                   .prefetch_distance = {1},
                   .found_on = {-1},
                   .settings = "cpu"};
  static_assert(ebb::Stats::kNewest == 16384);
  return stats.tiers.at(0).arena.ready == stats.links.at(0).transfers && stats.blocked_s.at("copy") == 0.5;
}
