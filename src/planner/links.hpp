#pragma once
// The links of the machine, and the routes over them.
#include <span>
#include <vector>

#include "planner/context.hpp"
#include "planner/link.hpp"
#include "planner/pacer.hpp"
#include "planner/staging_rings.hpp"

namespace ebb::planner {

class Links {
 public:
  Links(const Context& context, const Pacers& pacers, const StagingRings& rings);

  Link& operator[](int l) { return links_[static_cast<std::size_t>(l)]; }
  const Link& operator[](int l) const { return links_[static_cast<std::size_t>(l)]; }
  const std::vector<Link>& all() const { return links_; }

  // Between two tiers, kNoTier being the application: the direct route, and behind it the detours.
  std::span<const Route> ways(TierIndex from, TierIndex to) const {
    const int n = context_.tiers(), a = from == kNoTier ? n : from, b = to == kNoTier ? n : to;
    return routes_[static_cast<std::size_t>(a * (n + 1) + b)];
  }
  const Route& route(TierIndex from, TierIndex to) const { return ways(from, to).front(); }
  // By all of its ways at once: the direct one, and the detours that have a staging ring now.
  Time time(TierIndex from, TierIndex to, Bytes bytes) const;
  // Whether a lender's pace, and not a link, sets the time of the route.
  bool paced(TierIndex from, TierIndex to, Bytes bytes) const;

 private:
  Time slowest_of(const Route& route, Bytes bytes) const;
  Time together(TierIndex from, TierIndex to, Bytes bytes) const;

  const Context& context_;
  const Pacers& pacers_;
  const StagingRings& rings_;
  std::vector<Link> links_;
  std::vector<std::vector<Route>> routes_;  // (tiers + 1)^2; the last row and column are the application
};

}  // namespace ebb::planner
