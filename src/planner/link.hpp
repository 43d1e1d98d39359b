#pragma once
// A link: what it carries, what that has cost so far, and which moves pass it.
//
// Between the host and memory that others lend there is one link, over which each lender's device makes its own copies:
// they are on as many links of the machine as there are lenders. `depth` then counts for each lender, and `estimate` is
// the rate of all of them together.
#include <algorithm>
#include <optional>
#include <utility>
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
  bool between_lent_and_host = false;
  std::vector<std::pair<PartyId, int>>
      by_lender;  // commands in flight on such a link, by whose device copies; 0: its own
  int in_flight_of(PartyId lender) const {
    const auto found = std::ranges::find(by_lender, lender, &std::pair<PartyId, int>::first);
    return found == by_lender.end() ? 0 : found->second;
  }
  void count(PartyId lender, int more) {
    const auto found = std::ranges::find(by_lender, lender, &std::pair<PartyId, int>::first);
    if (found == by_lender.end())
      by_lender.emplace_back(lender, more);
    else if ((found->second += more) == 0)
      by_lender.erase(found);
  }
  // A fast disk wants many transfers at once; on a slow one they would hold up the urgent.
  int depth() const {
    if (spec.window == 0 || spec.depth <= 2) return spec.depth;
    const double at_once = estimate.bytes_per_s() * static_cast<double>(spec.window) * 1e-9;
    return static_cast<int>(
        std::clamp(at_once / static_cast<double>(spec.chunk), 2.0, static_cast<double>(spec.depth)));
  }
};

}  // namespace ebb::planner
