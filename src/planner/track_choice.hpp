#pragma once
// When tracking is not worth its cost: where many zones are written between two cuts, a fault for each costs more than
// to copy everything.
#include <cstdint>
#include <optional>

#include "planner/ids.hpp"

namespace ebb::planner {

struct TrackBounds {
  double share = 0.07;       // of the zones that are dirty; above it, tracking loses
  std::uint32_t in_row = 2;  // cuts with more, after which tracking stops
  std::uint32_t probe = 20;  // in one interval of so many some zones are watched, to see whether that has changed
};
// For zones of this size. A fault costs what it does however small its zone is.
TrackBounds track_bounds(Bytes zone);

// Which zones of a region to watch until the next cut.
enum class Tracked : std::uint8_t { nothing, sample, everything };

// Decides for one region. Not thread-safe.
class TrackChoice {
 public:
  explicit TrackChoice(const TrackBounds& bounds = {}) : bounds_(bounds) {}
  // A cut is taken. `share`: of the zones that were watched, those that were written since the one before; none if none
  // were watched.
  Tracked at_cut(std::optional<double> share);
  // Tracking has stopped.
  bool stopped() const { return above_ >= bounds_.in_row; }

 private:
  TrackBounds bounds_;
  std::uint32_t above_ = 0;    // cuts in a row
  std::uint32_t without_ = 0;  // intervals since one was watched
};

}  // namespace ebb::planner
