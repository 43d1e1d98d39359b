#pragma once
// A link: what it carries, what that has cost so far, and which moves pass it.
#include <algorithm>
#include <optional>
#include <vector>

#include "planner/link_estimate.hpp"
#include "planner/move.hpp"
#include "planner/pacer.hpp"
#include "planner/use.hpp"

namespace ebb::planner {

struct Link {
  explicit Link(const LinkSpec& s) : spec(s), estimate(s) {
    if (s.most_bytes_per_s > 0) pacer.emplace(kWholeLink);
  }
  LinkSpec spec;
  LinkEstimate estimate;
  std::optional<Pacer> pacer;  // of its own, at most_bytes_per_s
  LinkUse use;
  Time heard = 0;                // when a command was last reported
  int carried = 0;               // commands that it is done with, and that have yet to end
  std::vector<MoveIndex> moves;  // with a hop over it
  // A fast disk wants many transfers at once; on a slow one they would hold up the urgent.
  int depth() const {
    if (spec.window == 0 || spec.depth <= 2) return spec.depth;
    const double at_once = estimate.bytes_per_s() * static_cast<double>(spec.window) * 1e-9;
    return static_cast<int>(
        std::clamp(at_once / static_cast<double>(spec.chunk), 2.0, static_cast<double>(spec.depth)));
  }
};

}  // namespace ebb::planner
