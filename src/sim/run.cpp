#include <algorithm>

#include "sim/simulation.hpp"

namespace ebb::sim {

using policy::Command;
using policy::Output;
using policy::Planner;

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

std::ptrdiff_t first_difference(const policy::Machine& machine, const std::vector<Step>& steps) {
  Planner planner(machine);
  Output out;
  auto same = [](const Command& a, const Command& b) {
    return a.id == b.id && a.link == b.link && a.checkpoint == b.checkpoint && a.request == b.request &&
           a.offset == b.offset && a.length == b.length && a.total == b.total && a.from.at == b.from.at &&
           a.from.offset == b.from.offset && a.to.at == b.to.at && a.to.offset == b.to.offset;
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    out.clear();
    planner.on(steps[i].event, out);
    if (!std::equal(out.commands.begin(), out.commands.end(), steps[i].output.commands.begin(),
                    steps[i].output.commands.end(), same))
      return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace ebb::sim
