#include "sim/predict.hpp"

#include <algorithm>

namespace ebb::sim {
namespace {

std::uint64_t whole(double rate) { return static_cast<std::uint64_t>(std::max(1.0, rate)); }

}  // namespace

MachineModel measured_machine(const Measured& rates, const Caches& caches) {
  Rates r;
  r.copy = whole(rates.copy);
  r.device_host = whole(rates.device_host > 0 ? rates.device_host : rates.copy);
  r.file_write = whole(rates.file_write);
  r.file_read = whole(rates.file_read);
  r.file_latency = rates.file_latency;
  r.memory = rates.memory_shared ? whole(rates.memory > 0 ? rates.memory : 2 * rates.copy) : 0;
  MachineModel out = make_machine(caches.device, caches.host, caches.local, r, caches.eviction, caches.manual_prefetch);
  for (std::size_t l = 0; l < out.links.size(); ++l) {
    const policy::LinkSpec& link = out.planner.links[l];
    // The calling threads copy concurrently; a call has a cost besides its copy.
    if (link.from == policy::kApplication || link.to == policy::kApplication) {
      out.links[l].shared = true;
      out.links[l].latency = rates.call;
    }
  }
  return out;
}

Prediction predict(const Measured& rates, const Caches& caches, const std::vector<Shot>& ranks) {
  const MachineModel machine = measured_machine(rates, caches);
  const auto lowest = static_cast<TierIndex>(machine.planner.tiers.size() - 1);
  std::vector<std::vector<Program>> programs;
  for (const Shot& shot : ranks) programs.push_back({program_of(shot, lowest)});
  const Result result = run_ranks(machine, programs);
  Prediction out;
  std::vector<const Call*> calls;
  for (const Call& call : result.calls) calls.push_back(&call);
  std::stable_sort(calls.begin(), calls.end(), [](const Call* a, const Call* b) { return a->rank < b->rank; });
  for (const Call* call : calls) {
    const double blocked = static_cast<double>(call->blocked()) * 1e-9;
    if (call->kind == Op::Kind::checkpoint) {
      out.checkpoint_blocked_s.push_back(blocked);
      out.checkpoint_s += blocked;
    } else if (call->kind == Op::Kind::restore) {
      out.restore_blocked_s.push_back(blocked);
      out.restore_s += blocked;
      out.found_on.push_back(call->found_on);
      out.prefetch_distance.push_back(call->distance);
    } else if (call->kind == Op::Kind::wait) {
      out.flush_wait_s = std::max(out.flush_wait_s, blocked);
    }
  }
  out.blocked_s = out.checkpoint_s + out.restore_s;
  out.makespan_s = static_cast<double>(result.makespan) * 1e-9;
  return out;
}

}  // namespace ebb::sim
