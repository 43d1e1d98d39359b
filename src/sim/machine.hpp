#pragma once
// How a machine actually behaves; planner::Machine is the planner's estimate.
#include <string_view>
#include <vector>

#include "planner/provisioner.hpp"
#include "planner/topology.hpp"

namespace ebb::sim {

using planner::Bytes;
using planner::HistoryId;
using planner::TierIndex;
using planner::Time;
using planner::Version;

inline constexpr Time kSecond = 1'000'000'000;

struct LinkModel {
  std::uint64_t bytes_per_s = 1'000'000'000;
  Time latency = 0;              // of each command; it overlaps with the previous command's transfer
  bool shared = false;           // the held commands move concurrently, at equal shares; else in sequence
  std::vector<int> groups = {};  // whose rate it shares, of MachineModel::groups, each once
};

// Links that share a device. Its rate is divided fairly between the active ones; what a link leaves of its share,
// because it or another group of it is slower, goes to the others.
struct GroupModel {
  std::uint64_t bytes_per_s = 0;  // 0: by time, each of n active links runs at 1/n of its own rate
  bool of_node = true;            // shared by all ranks of a run (a disk); else one per GPU
  int of_lender = -1;             // no group of its own, but this one (of GPUs) of the GPU whose memory is copied
};

// A tier's own memory comes while the programs run, as planner::Provisioner decides. Copies of memory that is used
// unpinned are as fast as others, and registrations hold up no copy.
struct ProvisionModel {
  TierIndex tier = 0;
  std::uint64_t touch_bytes_per_s = 30'000'000'000;  // of all threads, when all of them touch
  std::uint64_t pin_bytes_per_s = 50'000'000'000;    // one registration at a time on a node, which all ranks share
  Time pin_latency = 60'000;                         // of each registration
  planner::ProvisionSpec spec = {};                  // capacity: the tier's
};

// Memory that a GPU lends to each rank from the start, and whose copies to the host its own device makes.
struct LentModel {
  TierIndex tier = 0;
  int lender = 0;  // its place in the rank's row of MachineModel::lenders
  Bytes bytes = 0;
};

struct MachineModel {
  planner::Machine planner;
  std::vector<LinkModel> links;  // as planner.links
  std::vector<GroupModel> groups;
  std::vector<ProvisionModel> provisioned;  // other tiers have all their memory from the start
  // By rank, the GPUs that lend to it, where groups are `of_lender`: what the lender p of a segment (event::Lend) lends
  // is on the p-th, or on the last; what has no lender is on the first. Rank r has GPU r; GPUs beyond have no program.
  std::vector<std::vector<int>> lenders;
  std::vector<LentModel> lent;

  std::uint64_t rate_of_group(int group) const;
  LinkModel& link(std::string_view name);  // throws std::invalid_argument when there is none
  const LinkModel& link(std::string_view name) const;
};

// A machine whose links do what the planner's own figures say. Links with the same first resource share a GroupModel
// by time.
MachineModel model_of(const planner::Machine& planner);

// The usual tiers: device, host, local (a capacity of 0 leaves a tier out), with these rates.
struct Rates {
  std::uint64_t copy = 8'000'000'000;         // application and device cache, either way
  std::uint64_t device_host = 8'000'000'000;  // device and host, either way
  std::uint64_t file_write = 1'500'000'000, file_read = 1'500'000'000;
  std::uint64_t memory = 0;  // all copies between memories share it; 0: they do not share
  bool disk_shared = true;   // the file tier's reads and writes share its time
  Time copy_latency = 0, file_latency = 0;
};
MachineModel make_machine(Bytes device, Bytes host, Bytes local, const Rates& rates = {},
                          planner::EvictionPolicy eviction = planner::EvictionPolicy::score,
                          bool manual_prefetch = false);

}  // namespace ebb::sim
