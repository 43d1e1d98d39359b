#include "planner/retention.hpp"

#include <algorithm>
#include <limits>

namespace ebb::planner {

bool is_multiple(const Retention& how, Version version) {
  const auto every = static_cast<Version>(std::min<std::uint64_t>(how.keep_every, std::numeric_limits<Version>::max()));
  return every != 0 && version % every == 0;
}

std::vector<Dispensable> dispensable(const Retention& how, std::span<const Retained> newest_first) {
  std::vector<Dispensable> out;
  if (how.keep_last == 0) return out;
  std::uint64_t newer = 0;  // that count
  for (std::size_t place = 0; place < newest_first.size(); ++place) {
    const Retained& one = newest_first[place];
    if (newer >= how.keep_last && !one.newest_write) out.push_back({place, !is_multiple(how, one.version)});
    newer += one.counts;
  }
  return out;
}

}  // namespace ebb::planner
