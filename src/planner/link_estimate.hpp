#pragma once
// What a link really carries: a running average of the rate between one completion and another. Drivers report in
// bursts, of no more than is in flight at once; the time from one to the next within a burst says nothing of the link.
// So a sample has as many completions as were in flight, and with them the time of one burst at least. Beside the
// average there is the last sample, for who must not count on more than the link has now.
#include <algorithm>

#include "planner/topology.hpp"

namespace ebb::planner {

class LinkEstimate {
 public:
  explicit LinkEstimate(const LinkSpec& spec)
      : bytes_per_s_(spec.bytes_per_s), last_(spec.bytes_per_s), latency_(spec.latency) {}

  void issued(Time now) {
    if (in_flight_++ == 0) busy_since_ = mark_ = now;
    most_ = std::max(most_, in_flight_);
  }
  // The time since the later of the last completion and the start of the busy period is what `bytes` took.
  void finished(Time now, Bytes bytes) {
    const Time took = now - mark_;
    mark_ = now;
    ended(now);
    pending_bytes_ += bytes;
    pending_time_ += took;
    ++pending_;
    if (pending_bytes_ < kSample || pending_ < most_ || pending_time_ <= 0) return;
    const double rate = static_cast<double>(pending_bytes_) * 1e9 / static_cast<double>(pending_time_);
    bytes_per_s_ += (rate - bytes_per_s_) / 8;
    last_ = rate;
    pending_bytes_ = 0;
    pending_time_ = 0;
    pending_ = 0;
    most_ = in_flight_;
  }
  void failed(Time now) {
    mark_ = now;
    ended(now);
  }

  Time time_for(Bytes bytes) const { return time_at(bytes_per_s_, bytes); }
  // By the average or by the last sample, whichever is slower.
  Time longest_for(Bytes bytes) const { return time_at(std::min(bytes_per_s_, last_), bytes); }
  double bytes_per_s() const { return bytes_per_s_; }
  int in_flight() const { return in_flight_; }
  // Up to the last completion, so that it is that of the bytes that are counted.
  Time busy() const { return busy_ + (in_flight_ > 0 ? mark_ - busy_since_ : 0); }

 private:
  static constexpr Bytes kSample = 64 << 10;  // shorter samples measure the clock, not the link
  Time time_at(double rate, Bytes bytes) const {
    return latency_ + static_cast<Time>(static_cast<double>(bytes) * 1e9 / std::max(1.0, rate));
  }
  void ended(Time now) {
    if (--in_flight_ == 0) busy_ += now - busy_since_;
  }

  double bytes_per_s_, last_;
  Time latency_;
  Time mark_ = 0, busy_since_ = 0, busy_ = 0;
  Bytes pending_bytes_ = 0;
  Time pending_time_ = 0;
  int in_flight_ = 0;
  int pending_ = 0, most_ = 0;  // of the sample: completions, and the most that were in flight
};

}  // namespace ebb::planner
