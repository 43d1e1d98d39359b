#pragma once
// Whether touching should pause while a copy runs. Both use the bandwidth of host memory, so that each is slower beside
// the other (hipc22 sec. IV-A, "Concurrency control", and IV-B, forms (B) and (C)).
#include <algorithm>

#include "planner/provisioner.hpp"

namespace ebb::policy {

// What is only known beside the other is no faster alone: a bound on the safe side.
inline double copy_alone(const GrowthFigures& f) { return f.copy_alone > 0 ? f.copy_alone : f.copy_beside; }

// What touching brings a second when nothing else goes on: registration follows it as in a pipeline, and the slower of
// the two decides.
inline double supply_alone(const GrowthFigures& f) {
  const double touch = f.touch_alone > 0 ? f.touch_alone : f.touch_beside;
  return f.pin > 0 ? std::min(touch, f.pin) : touch;
}

// Nanoseconds until a checkpoint of S bytes is copied and the memory of the next one is touched.
// Form (C), one after the other: S/F + S/T.
inline double sequential_time(const GrowthFigures& f) {
  return 1e9 * (f.bytes / copy_alone(f) + f.bytes / supply_alone(f));
}

// Form (B), beside each other at the rates Fc and Tc; when one is done, what is left of the other goes on alone.
inline double concurrent_time(const GrowthFigures& f) {
  const double supply_beside = f.pin > 0 ? std::min(f.touch_beside, f.pin) : f.touch_beside;
  const double copy = f.bytes / f.copy_beside, touch = f.bytes / supply_beside;
  if (copy < touch) return 1e9 * (copy + (f.bytes - copy * supply_beside) / supply_alone(f));
  return 1e9 * (touch + (f.bytes - touch * f.copy_beside) / copy_alone(f));
}

// Of an interval I that begins with a checkpoint of S bytes, I - S/F is left when that is copied at full speed. If the
// memory of the next checkpoint can be touched then,
//   T (I - S/F) >= m S,
// pausing costs nothing and the copies are as fast as can be: the sequential form. Otherwise something must wait, and
// the form in which copy and touching are done sooner is taken, if all four rates have been seen. m leaves room for
// irregular intervals; each side of the decision is left a little later than it is entered.
inline bool prefers_sequential(const GrowthFigures& f, bool is_sequential) {
  const double supply = supply_alone(f), copy = copy_alone(f);
  if (f.interval <= 0 || f.bytes <= 0 || copy <= 0 || supply <= 0) return false;
  const double margin = is_sequential ? 1.1 : 1.5;
  const double idle = f.interval / 1e9 - f.bytes / copy;
  if (supply * idle >= margin * f.bytes) return true;
  if (f.copy_alone <= 0 || f.copy_beside <= 0 || f.touch_alone <= 0 || f.touch_beside <= 0) return false;
  const double advantage = is_sequential ? 1.05 : 0.95;
  return sequential_time(f) < advantage * concurrent_time(f);
}

}  // namespace ebb::policy
