#pragma once
// Which links a row of tiers has. Endpoints of one medium share a link: the staging ring uses the host's.
#include <string_view>

#include "planner/topology.hpp"

namespace ebb::policy {

// The nodes between which bytes move are the application ("app"), host memory ("host": host tiers and the staging ring
// are one node, which exists even when no host tier does), and every other tier by its name. Links, each directed:
//   app and host, app and each device tier, host and every other tier; "host>host" where there are two host tiers.
// Any other pair (a file from or to the application, a device or another file) goes through the ring, in two hops.
struct Route {
  int hops = 0;  // 1: direct; 2: through the ring
  int link[2] = {-1, -1};
};

// The links of a machine with these tiers, named "a>b" with a, b among "app", "host" and the tiers' names, with default
// estimates; drivers and tests then set bandwidths by name.
std::vector<LinkSpec> make_links(const std::vector<TierSpec>& tiers);

int find_link(const std::vector<LinkSpec>& links, std::string_view name);  // -1: none

// How bytes go from one endpoint to another.
Route route(const std::vector<TierSpec>& tiers, const std::vector<LinkSpec>& links, Endpoint from, Endpoint to);

}  // namespace ebb::policy
