#include "sim/simulation.hpp"

namespace ebb::sim {

Result run_ranks(const MachineModel& machine, const std::vector<std::vector<Program>>& programs,
                 const Options& options) {
  Simulation simulation(machine, programs, options);
  while (simulation.step()) {
  }
  return simulation.result();
}

Result run(const MachineModel& machine, const std::vector<Program>& programs, const Options& options) {
  return run_ranks(machine, {programs}, options);
}

}  // namespace ebb::sim
