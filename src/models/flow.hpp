#pragma once
// Where the bytes go that GPUs cannot hold: to memory that others can spare, to the host, or to the host through
// another GPU's link (sc22, slides 15-21, 49, 60, 61). docs/design/peers.md has the model.
#include <vector>

#include "planner/ids.hpp"

namespace ebb::models {

using planner::Bytes;
using planner::Time;
using Rate = std::uint64_t;  // bytes a second

// The links of a node's GPUs, each in the direction away from the GPU that has too much.
struct PeerLinks {
  explicit PeerLinks(int gpus);  // no pairs, no limits, and no links to the host yet
  int gpus() const { return static_cast<int>(host.size()); }
  Rate& pair(int from, int to) { return pairs[index(from, to)]; }
  Rate pair(int from, int to) const { return pairs[index(from, to)]; }

  std::vector<Rate> pairs;            // [from * gpus + to]; 0: no link
  std::vector<Rate> egress, ingress;  // of a GPU to and from all others together (NVSwitch); 0: no limit
  std::vector<Rate> host;             // of a GPU's link to the host; never 0
  Rate host_memory = 0;               // of all links to the host together; 0: no limit
  bool relays = false;                // bytes may go through a peer's memory to the host over the peer's link

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * host.size() + static_cast<std::size_t>(to);
  }
};

// One moment: what each GPU cannot hold, and what it can spare.
struct Overflow {
  std::vector<Bytes> remainder, spare;
};

enum class RouteKind : std::uint8_t {
  peer,   // into a peer's memory
  host,   // over the GPU's own link
  relay,  // to the host through a staging ring in a peer's memory, over the peer's link
};
struct Transfer {
  int from = 0;
  RouteKind kind = RouteKind::host;
  int peer = -1;  // of the kinds peer and relay
  Bytes bytes = 0;
  bool operator==(const Transfer&) const = default;
};

struct FlowPlan {
  std::vector<Transfer> transfers;  // by source, then in the order of RouteKind and peers; none without bytes
  std::vector<Time> ends;           // of each GPU's transfers, if all begin at 0; 0: it has none
  Time time() const;                // when the last one ends
};

// Each takes all remainders somewhere: the host has room for everything.
enum class FlowStrategy : std::uint8_t {
  local,       // all to the host (slide 15)
  greedy,      // the largest remainder first, each to the fastest peer with something to spare (slide 16)
  flow_paper,  // unit by unit along the path whose slowest link is cheapest (slides 17, 60)
  flow,        // the least time
};
// What a path costs to `flow_paper`.
enum class PathCost : std::uint8_t {
  slowest,  // the cost of its dearest link, as slide 60 says
  added,    // the sum over its links, as the usual algorithms have it
};
struct FlowOptions {
  Bytes unit = 1'000'000;  // of flow_paper
  PathCost cost = PathCost::slowest;
};

// Throws std::logic_error if the numbers contradict each other or are out of range (a petabyte, a petabyte a second, a
// century).
//
// `flow`: no plan ends the last transfer sooner, to the nanosecond. Those that cannot all end sooner than that are then
// held to it, and the others are planned again, until all have their time. Amounts are whole bytes, so that a link may
// carry one byte more than its time allows, and another one for each earlier end.
FlowPlan plan_flow(const PeerLinks& links, const Overflow& overflow, FlowStrategy strategy,
                   const FlowOptions& options = {});

}  // namespace ebb::models
