#pragma once
// The machine that the planner plans for, as data: nodes, tiers on them, links between them, and the rules of the
// store.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner {

// Where bytes can be: the application, host memory, a device, a disk. Tiers are on nodes, links lead from node to node.
struct NodeSpec {
  std::string name;
  // Slots of a staging ring for each direction; 0: nothing passes through this node. Where others lend all of its
  // tier's memory, each of them lends such a ring too (staging_rings.hpp).
  int staging = 0;
};
inline constexpr NodeIndex kApplication = 0;

enum class Medium : std::uint8_t { device, host, file };

// Which versions of each history a store keeps; the rule is in retention.hpp.
struct Retention {
  std::uint64_t keep_last = 0;   // 0: all stay
  std::uint64_t keep_every = 0;  // multiples of it stay; 0: none for that
  bool agreed = false;           // Machine::retention's: nothing above the version of event::Agreed makes up for others
};

inline constexpr std::uint64_t kNothingComes = UINT64_MAX, kOnRequest = UINT64_MAX - 1;

inline constexpr Bytes kGrain = 256;  // the alignment of what cudaMalloc gives

struct TierSpec {
  std::string name;  // "device", "peer" (memory of other GPUs, which they lend), "host", "local"
  Medium medium = Medium::host;
  Bytes capacity = 0;    // 0: all of its memory comes as segments that others lend
  Bytes granule = 4096;  // sizes and offsets are rounded up to it, smaller sizes to the grain
  NodeIndex node = -1;
  // Of file tiers that keep (Machine::ephemeral): what stays in this one, if not what Machine::retention says. And, of
  // those below another: which versions come here, the multiples of `every`, and those of event::Goes or that a wait
  // asks for. 0 and 1: all; kNothingComes: none; kOnRequest: those that are asked for alone.
  std::optional<Retention> retention = {};
  std::uint64_t every = 0;
  Bytes adopted = 0;  // of the program's own memory, so much may be replicas here (the fastest tier, in memory)
  // Of a memory tier: a checkpoint smaller than a granule is rounded up to the grain, and shares granules. 0: it has a
  // granule of its own.
  Bytes grain = 0;
};

// A file tier below another one that has something to end, and has ended nothing for so long, does not answer.
inline constexpr Time kSilentAfter = 60'000'000'000;

// What several links share, such as a disk's time or a bus.
struct ResourceSpec {
  std::string name;
  bool urgent_first = true;  // a transfer waits while a more urgent one has anything to send over it (a disk)
};

// A depth: the driver queues whatever it is given, and nothing is gained by giving it later.
inline constexpr int kTakesAll = 1 << 12;

// A directed path with its own queue.
struct LinkSpec {
  std::string name;
  NodeIndex from = -1, to = -1;
  double bytes_per_s = 1e9;     // the first estimate; running averages replace it
  Time latency = 0;             // per transfer
  Bytes chunk = 4 << 20;        // longest transfer; a multiple of every granule
  int depth = 2;                // transfers a driver holds at once, at most
  Time window = 0;              // and, beyond two, no more than it carries in this time; 0: no such limit
  double most_bytes_per_s = 0;  // in any second it is given so much and two transfers, at most; 0: no such limit
  std::vector<int> resources;   // that it uses, by index
};

// One end of a command: the application, a node's staging ring or a tier.
struct Endpoint {
  enum Kind : std::uint8_t { application, ring, tier } kind = application;
  std::int8_t index = -1;  // the ring's node, or the tier; -1 for the application
  bool operator==(const Endpoint&) const = default;
};

enum class EvictionPolicy : std::uint8_t { score, score_paper, lru, fifo };

struct Machine {
  std::vector<TierSpec> tiers;  // fastest first
  std::vector<NodeSpec> nodes;  // the application first
  std::vector<LinkSpec> links;
  std::vector<ResourceSpec> resources;
  Bytes ring_slot = 4 << 20;  // of every staging ring, but for those in lent memory, whose slots hold a link's chunk
  EvictionPolicy eviction = EvictionPolicy::score;
  // Consumed means discarded. Otherwise everything goes down to the fastest file tier, consumed or not, and leaves a
  // file there only when it is dropped or could not be read, or is durable on a file tier below (docs/design/tiers.md).
  // A checkpoint of no bytes is complete in that file with the answer to its call, without a command (a driver writes
  // what names it then) and without taking room; its end is a Freed as any other's, of length 0.
  bool ephemeral = true;
  // Only for a store that is not ephemeral and has a file; of each file tier that names no other. A version that newer
  // ones make up for is dropped once those are durable, and checkpoints come to the file in the order in which they
  // were written.
  Retention retention;
  // A file tier gives the disk its bytes back some time after the Freed: until event::Unreleased says so, they count.
  bool releases_later = false;
  bool manual_prefetch = false;  // nothing is prefetched before start_prefetch
  int max_retries = 3;           // of one transfer
};

// The usual nodes and links of a machine with these tiers, in place of those it has: the application ("app"), host
// memory ("host", node kHost, with the staging ring; all host tiers are on it), and every other tier on a node of its
// own. Host memory is linked with all others and the application with all devices, either way; a file tier's reads and
// writes share its disk. Links are named "from>to" and have default estimates.
inline constexpr NodeIndex kHost = 1;
void connect(Machine& machine, int staging = 8);

// Whether there is a memory tier on the node, and others lend all of its memory.
bool all_lent(const Machine& machine, NodeIndex node);

// The fastest tier that keeps what is put there, in a file; as many as there are tiers: none does.
TierIndex first_keeping(const Machine& machine);

// Whether a file tier is on the node.
bool on_file(const Machine& machine, NodeIndex node);

int find_link(const std::vector<LinkSpec>& links, std::string_view name);  // -1: none

// The links that bytes take from one node to another: the fewest; every node between them has a staging ring.
inline constexpr int kMaxHops = 4;
struct Route {
  int hops = 0;
  std::array<int, kMaxHops> link{};
  int operator[](int hop) const { return link[static_cast<std::size_t>(hop)]; }
};
// Throws std::logic_error naming the nodes if there is none of at most kMaxHops links.
Route route(const Machine& machine, NodeIndex from, NodeIndex to);

// Beside the one link between two nodes, the ways by a third one: a peer with a staging ring relays over its own link.
std::vector<Route> detours(const Machine& machine, NodeIndex from, NodeIndex to);

// The nodes that have a staging ring of their own which a route between the application and a tier, or between two
// tiers, passes, in order.
std::vector<NodeIndex> nodes_passed(const Machine& machine);

}  // namespace ebb::planner
