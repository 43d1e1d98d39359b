#pragma once
// The machine that the planner plans for: tiers, the links between them, and the rules of the store.
#include <string>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::policy {

// What a tier's bytes lie on. Transfers between two places go directly if either is host memory or both are on the
// device or the application; all others (file from or to device, application or another file) pass the staging ring.
enum class Medium : std::uint8_t { device, host, file };

struct TierSpec {
  std::string name;  // "device", "host", "local"
  Medium medium = Medium::host;
  Bytes capacity = 0;    // 0: the tier is absent
  Bytes granule = 4096;  // sizes and offsets are rounded up to it
};

// Endpoints of a link: a tier, the application, or the staging ring (which lies in host memory).
struct Endpoint {
  enum Kind : std::uint8_t { application, ring, tier } kind = application;
  TierIndex index = kNoTier;
  bool operator==(const Endpoint&) const = default;
};

// A directed path with its own queue. Which links exist follows from the tiers (see make_links in links.hpp).
struct LinkSpec {
  std::string name;  // "app>device", "device>host", "host>local", "local>host"; ring traffic shares the host's links
  double bytes_per_s = 1e9;  // the first estimate; running averages replace it
  Time latency = 0;          // per transfer
  Bytes chunk = 4 << 20;     // longest transfer; a multiple of every granule
  int depth = 2;             // transfers a driver holds at once, at most
  Time window = 0;           // and, beyond two, no more than it carries in this time; 0: no such limit
  int group = -1;            // links of one group share a device (a disk's reads and writes); -1: none
};

// Which versions of each history a store keeps; the rule is in retention.hpp.
struct Retention {
  std::uint64_t keep_last = 0;   // 0: all stay
  std::uint64_t keep_every = 0;  // multiples of it stay; 0: none for that
};

enum class EvictionPolicy : std::uint8_t { score, score_paper, lru, fifo };

struct Machine {
  std::vector<TierSpec> tiers;  // fastest first
  std::vector<LinkSpec> links;  // as make_links() orders them
  Bytes ring_slot = 4 << 20;    // staging ring: slots of this size ...
  int ring_slots = 8;           // ... this many for each direction
  EvictionPolicy eviction = EvictionPolicy::score;
  // Consumed means discarded. Otherwise everything goes down to the slowest tier, consumed or not, and leaves a file
  // there only when it is dropped or could not be read. A checkpoint of no bytes is complete in that file with the
  // answer to its call, without a command (a driver writes what names it then) and without taking room; its end is a
  // Freed as any other's, of length 0.
  bool ephemeral = true;
  // Of a store that is not ephemeral and has a file. A version that newer ones make up for is dropped, once those are
  // durable, and checkpoints come to the file in the order in which they were written.
  Retention retention;
  bool manual_prefetch = false;  // nothing is prefetched before start_prefetch
  int max_retries = 3;           // of one transfer
};

}  // namespace ebb::policy
