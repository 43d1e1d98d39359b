#pragma once
// What a link really carries: a running average of the rate between one completion and the next.
#include <algorithm>

#include "policy/types.hpp"

namespace ebb::policy {

class LinkEstimate {
 public:
  explicit LinkEstimate(const LinkSpec& spec) : bytes_per_s_(spec.bytes_per_s), latency_(spec.latency) {}

  void issued(Time now) {
    if (in_flight_++ == 0) busy_since_ = mark_ = now;
  }
  // The time since the later of the last completion and the start of the busy period is what `bytes` took.
  void finished(Time now, Bytes bytes) {
    const Time took = now - mark_;
    mark_ = now;
    ended(now);
    pending_bytes_ += bytes;
    pending_time_ += took;
    if (pending_bytes_ < kSample || pending_time_ <= 0) return;
    const double rate = static_cast<double>(pending_bytes_) * 1e9 / static_cast<double>(pending_time_);
    bytes_per_s_ += (rate - bytes_per_s_) / 8;
    pending_bytes_ = 0;
    pending_time_ = 0;
  }
  void failed(Time now) {
    mark_ = now;
    ended(now);
  }

  Time time_for(Bytes bytes) const {
    return latency_ + static_cast<Time>(static_cast<double>(bytes) * 1e9 / std::max(1.0, bytes_per_s_));
  }
  double bytes_per_s() const { return bytes_per_s_; }
  int in_flight() const { return in_flight_; }
  Time busy() const { return busy_; }

 private:
  static constexpr Bytes kSample = 64 << 10;  // shorter samples measure the clock, not the link
  void ended(Time now) {
    if (--in_flight_ == 0) busy_ += now - busy_since_;
  }

  double bytes_per_s_;
  Time latency_;
  Time mark_ = 0, busy_since_ = 0, busy_ = 0;
  Bytes pending_bytes_ = 0;
  Time pending_time_ = 0;
  int in_flight_ = 0;
};

}  // namespace ebb::policy
