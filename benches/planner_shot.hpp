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

/// Those that live, on any tier.
inline std::uint32_t replicas_of(const ebb::planner::Planner& planner) {
  std::uint32_t replicas = 0;
  for (ebb::planner::TierIndex t = 0; t < 3; ++t) replicas += planner.use(t).replicas;
  return replicas;
}

}  // namespace bench
