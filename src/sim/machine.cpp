#include "sim/machine.hpp"

#include <map>
#include <stdexcept>
#include <string>

namespace ebb::sim {

const LinkModel& MachineModel::link(std::string_view name) const {
  const int found = planner::find_link(planner.links, name);
  if (found < 0) throw std::invalid_argument("machine without a link " + std::string(name));
  return links.at(static_cast<std::size_t>(found));
}

LinkModel& MachineModel::link(std::string_view name) {
  return const_cast<LinkModel&>(static_cast<const MachineModel*>(this)->link(name));
}

std::uint64_t MachineModel::rate_of_group(int group) const {
  const GroupModel& model = groups.at(static_cast<std::size_t>(group));
  return model.of_lender < 0 ? model.bytes_per_s : rate_of_group(model.of_lender);
}

MachineModel model_of(const planner::Machine& planner) {
  MachineModel out{.planner = planner, .links = {}, .groups = {}, .provisioned = {}, .lenders = {}, .lent = {}};
  std::map<int, int> groups;
  for (const planner::LinkSpec& spec : planner.links) {
    LinkModel link{.bytes_per_s = static_cast<std::uint64_t>(spec.bytes_per_s), .latency = spec.latency};
    if (!spec.resources.empty()) {
      const auto [it, fresh] = groups.emplace(spec.resources.front(), static_cast<int>(out.groups.size()));
      if (fresh) out.groups.push_back({});
      link.groups = {it->second};
    }
    out.links.push_back(link);
  }
  return out;
}

MachineModel make_machine(Bytes device, Bytes host, Bytes local, const Rates& rates, planner::EvictionPolicy eviction,
                          bool manual_prefetch) {
  planner::Machine planner;
  if (device) planner.tiers.push_back({.name = "device", .medium = planner::Medium::device, .capacity = device});
  if (host) planner.tiers.push_back({.name = "host", .medium = planner::Medium::host, .capacity = host});
  if (local) planner.tiers.push_back({.name = "local", .medium = planner::Medium::file, .capacity = local});
  planner::connect(planner);
  planner.eviction = eviction;
  planner.manual_prefetch = manual_prefetch;
  for (planner::LinkSpec& spec : planner.links) {
    const bool read = on_file(planner, spec.from), file = read || on_file(planner, spec.to);
    const bool app = spec.from == planner::kApplication || spec.to == planner::kApplication;
    const std::uint64_t rate = file  ? (read ? rates.file_read : rates.file_write)
                               : app ? rates.copy
                                     : rates.device_host;
    spec.bytes_per_s = static_cast<double>(rate);
    spec.latency = file ? rates.file_latency : rates.copy_latency;
    if (file && !rates.disk_shared) spec.resources.clear();
  }
  MachineModel out = model_of(planner);
  if (rates.memory) {
    const int group = static_cast<int>(out.groups.size());
    out.groups.push_back({.bytes_per_s = rates.memory, .of_node = true});
    for (LinkModel& link : out.links)
      if (link.groups.empty()) link.groups = {group};
  }
  return out;
}

}  // namespace ebb::sim
