#include "planner/track_choice.hpp"

#include <algorithm>

namespace ebb::planner {

// Measured on two idle cores: a zone that is written costs a fault and its way through the buffer, one of everything a
// copy.
TrackBounds track_bounds(Bytes zone) {
  constexpr double kFault = 20e-6, kThroughBuffer = 1.5e9, kCopy = 15e9;  // s, B/s
  const auto bytes = static_cast<double>(zone);
  return {.share = (bytes / kCopy) / (kFault + bytes / kThroughBuffer)};
}

Tracked TrackChoice::at_cut(std::optional<double> share) {
  if (share) above_ = *share > bounds_.share ? std::min(above_ + 1, bounds_.in_row) : 0;
  if (share || !stopped()) without_ = 0;
  if (!stopped()) return Tracked::everything;
  if (share || ++without_ + 1 < bounds_.probe) return Tracked::nothing;
  return Tracked::sample;
}

}  // namespace ebb::planner
