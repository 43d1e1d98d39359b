#pragma once
// What moves zones in the memory-zone hardware: the link to the host, and the offload unit of each memory channel
// (ics19 sec. 4.3.1). Each does one thing at a time, in the order of the requests.
#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/snapshot_plan.hpp"

namespace ebb::models {

using planner::Bytes;
using planner::Time;

// Transfers of s bytes run at b(s) = rate · s / (s + half): `half` is the size at which half the rate is reached.
class ZoneLink {
 public:
  ZoneLink(double rate, double half) : rate_(rate), half_(half) {}
  Time takes(Bytes bytes) const {
    return static_cast<Time>(std::llround((static_cast<double>(bytes) + half_) / rate_ * 1e9));
  }
  Time end_of(Time now, Bytes bytes) { return free_ = std::max(now, free_) + takes(bytes); }

 private:
  double rate_, half_;
  Time free_ = 0;
};

class OffloadUnits {
 public:
  OffloadUnits(std::uint32_t units, double rate) : rate_(rate / units), free_(units) {}  // rate: of all together
  Time end_of(std::uint32_t unit, Time now, Bytes bytes) {
    const Time takes = static_cast<Time>(std::llround(static_cast<double>(bytes) / rate_ * 1e9));
    return free_[unit] = std::max(now, free_[unit]) + takes;
  }

 private:
  double rate_;
  std::vector<Time> free_;
};

}  // namespace ebb::models
