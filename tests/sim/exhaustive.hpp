#pragma once
// The best schedule of a tiny case, found by trying them all. Shares no code with the bound that it judges.
#include <cstdint>
#include <vector>

namespace ebb::sim::testing {

// Bytes come in chunks, time in ticks. Two memory tiers at most, and one below them.
struct TinyCase {
  int fast = 1, second = 0;  // capacities in chunks; 0: no such tier
  int ring = 1;              // chunks of the current call on their way past the memory tiers
  int copy = 1;              // ticks a chunk: application and the fast tier
  int past = 1;              // ticks a chunk: application and the second tier or the ring; 0: not at all
  int swap = 1;              // fast and second tier, each way
  int down = 1, up = 1;      // memory and below
  bool shared = false;       // down and up not at once
  bool leaps = true;         // chunks of the fast tier go down and up in one hop, past the second
  struct Op {
    enum Kind : std::uint8_t { write, read, sleep } kind = sleep;
    int version = 0;
    int ticks = 0;
    bool keep = false;  // read: it stays, because it will be read again (or is not consumed)
  };
  std::vector<int> chunks;  // of each version
  std::vector<Op> ops;
};

// The least sum of ticks that calls stand. `during_copies`: links run while a call copies. -1: more than `limit`
// states. Every legal schedule is tried, chunk by chunk: which chunk moves on which link and when or whether at all,
// from which copy, what is evicted and what is kept twice, where each chunk of a call goes or comes from (any memory
// with room, or past them all through the ring, or, with links running, straight through both links at once).
int best_blocked(const TinyCase& tiny, bool during_copies, std::size_t limit = 3'000'000);

}  // namespace ebb::sim::testing
