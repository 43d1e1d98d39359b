#pragma once
// Which consecutive fragments of a tier make room for a new replica (hpdc23 sec. 4.2, algorithm 1): one pass, O(N).
//
// `score_paper` is the algorithm's meaning: least sum of waits (p-score), then most fragments without a hint and the
// largest sum of distances (s-score), tail windows included. `score` differs in one place: a window's worth is that of
// the member needed soonest, which compares windows that hold different numbers of checkpoints. Ties go to what was
// touched longest ago. `lru` and `fifo` look at recency alone.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/topology.hpp"

namespace ebb::planner {

struct FragmentScore {
  static constexpr std::int64_t kUnhinted = INT64_MAX;
  Bytes size = 0, offset = 0;
  bool border = false;  // a segment begins here: no window spans two
  bool never = false;   // in use for as long as the application likes, or not ours to take
  bool gap = false;
  Time wait = 0;  // until it can be evicted; 0: now
  std::int64_t distance = kUnhinted;
  std::uint64_t touched = 0;  // order of the last write or restore
  std::uint64_t written = 0;  // order of the write
};

struct Window {
  std::size_t first = 0, last = 0;  // fragments [first, last)
  Time wait = 0;                    // 0: all of it can be evicted now
};

class WindowChooser {
 public:
  explicit WindowChooser(EvictionPolicy policy) : policy_(policy) {}
  // The best window of at least `size` bytes; none: there is none. A size of whole granules must start on a
  // granule boundary. Reuses its own memory.
  std::optional<Window> choose(std::span<const FragmentScore> fragments, Bytes size, Bytes granule = 1);

 private:
  EvictionPolicy policy_;
  std::vector<std::uint32_t> waits_, recents_, nearest_;  // monotone queues of sliding maxima
};

}  // namespace ebb::planner
