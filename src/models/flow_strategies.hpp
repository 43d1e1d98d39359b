#pragma once
// The two strategies of flow.hpp that plan over the network.
#include "models/flow.hpp"

namespace ebb::models {

FlowPlan plan_least_time(const PeerLinks& links, const Overflow& overflow);
std::vector<Transfer> plan_by_units(const PeerLinks& links, const Overflow& overflow, const FlowOptions& options);

}  // namespace ebb::models
