#pragma once
// A shot whose planner events are measured: caches for 32 and 256 checkpoints, and a file tier that has room for all.
#include "sim/simulation.hpp"

namespace bench {

inline ebb::sim::Simulation planner_shot(std::size_t checkpoints, ebb::planner::Bytes bytes,
                                         ebb::sim::Shot::Order order) {
  ebb::sim::Shot shot = ebb::sim::Shot::equal(checkpoints, bytes);
  shot.order = order;
  return {ebb::sim::make_machine(32 * bytes, 256 * bytes, (checkpoints + 1) * bytes,
                                 {.copy = 1'000'000'000'000, .device_host = 25'000'000'000}),
          {{ebb::sim::program_of(shot, 2)}}};
}

/// Checkpoints of 128 bytes, of a store that keeps the newest five on files: they fill both caches, which together hold
/// so many, faster than the file takes them.
inline ebb::sim::Simulation small_checkpoints(std::size_t replicas, std::size_t checkpoints) {
  const ebb::planner::Bytes cache = replicas / 2 * 4096;
  ebb::sim::MachineModel machine = ebb::sim::make_machine(
      cache, cache, 1ull << 40, {.copy = 1'000'000'000'000, .device_host = 25'000'000'000, .file_latency = 20'000});
  machine.planner.ephemeral = false;
  machine.planner.retention = {5, 0};
  ebb::sim::Options options;
  options.syncs.interval = 1'000'000;
  ebb::sim::Program program;
  for (std::size_t v = 0; v < checkpoints; ++v) {
    program.ops.push_back(ebb::sim::op::sleep(1'000));
    program.ops.push_back(ebb::sim::op::checkpoint(static_cast<ebb::planner::Version>(v), 128));
  }
  return {machine, {{program}}, options};
}

/// Those that live, on any of the fastest tiers.
inline std::uint32_t replicas_of(const ebb::planner::Planner& planner, ebb::planner::TierIndex tiers = 3) {
  std::uint32_t replicas = 0;
  for (ebb::planner::TierIndex t = 0; t < tiers; ++t) replicas += planner.use(t).replicas;
  return replicas;
}

}  // namespace bench
