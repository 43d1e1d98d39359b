#pragma once
// Predicts the cost of a shot on a machine with measured bare rates.
#include "sim/bound.hpp"
#include "sim/simulation.hpp"

namespace ebb::sim {

// As measured by the benchmark: bare rates in bytes/s, times in ns.
struct Measured {
  double copy = 8e9;       // application <-> device cache, one thread
  double device_host = 0;  // device <-> host caches; 0: as `copy`
  double file_write = 1.5e9, file_read = 1.5e9;
  Time call = 2'000;  // of a call, excluding its copy
  Time file_latency = 100'000;
  bool memory_shared = false;  // copies between memories share one memory system and together run at `memory`
  double memory = 0;           // 0: twice `copy`
};

struct Caches {
  Bytes device = 0, host = 0, local = 0;
  policy::EvictionPolicy eviction = policy::EvictionPolicy::score;
  bool manual_prefetch = false;
};

MachineModel measured_machine(const Measured& rates, const Caches& caches);

struct Prediction {
  double blocked_s = 0, checkpoint_s = 0, restore_s = 0, flush_wait_s = 0, makespan_s = 0;
  std::vector<double> checkpoint_blocked_s, restore_blocked_s;  // one per call, rank by rank
  std::vector<int> found_on;
  std::vector<std::uint32_t> prefetch_distance;
};

// One shot per rank, with separate caches and a shared disk.
Prediction predict(const Measured& rates, const Caches& caches, const std::vector<Shot>& ranks);

}  // namespace ebb::sim
