#pragma once
// Machines and moments of the slides, and drawn ones.
#include <random>
#include <utility>

#include "models/flow.hpp"

namespace ebb::models {

inline constexpr Rate kGb = 1'000'000'000;  // a second
inline constexpr Bytes kMb = 1'000'000;

// Eight V100: two NVLinks between some, one between others, 12 GB/s to the host (slides 15, 46).
inline PeerLinks dgx1v() {
  PeerLinks out(8);
  for (auto [a, b] : {std::pair{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}})
    out.pair(a, b) = out.pair(b, a) = 48 * kGb;
  for (auto [a, b] : {std::pair{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}})
    out.pair(a, b) = out.pair(b, a) = 24 * kGb;
  out.host.assign(8, 12 * kGb);
  return out;
}

class FlowDraw {
 public:
  explicit FlowDraw(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

  // `exclusive`: no link serves several GPUs.
  PeerLinks links(int gpus, bool exclusive) {
    PeerLinks out(gpus);
    const bool round = chance(30);  // few different rates, so that there are ties
    const auto rate = [&] { return round ? 12 * kGb * between(1, 4) : between(1, 60'000'000'000); };
    for (int i = 0; i < gpus; ++i)
      for (int j = 0; j < gpus; ++j)
        if (i != j && chance(70)) out.pair(i, j) = rate();
    for (Rate& host : out.host) host = rate();
    if (exclusive) return out;
    const bool out_limited = chance(40), in_limited = chance(40);
    for (int i = 0; i < gpus; ++i) {
      if (out_limited && chance(80)) out.egress[static_cast<std::size_t>(i)] = rate();
      if (in_limited && chance(80)) out.ingress[static_cast<std::size_t>(i)] = rate();
    }
    if (chance(40)) out.host_memory = rate();
    out.relays = chance(40);
    return out;
  }
  Overflow overflow(int gpus) {
    Overflow out;
    for (int i = 0; i < gpus; ++i) {
      const Bytes bytes = chance(20) ? between(1, 10) : chance(30) ? kMb * between(1, 500) : between(1, 500 * kMb);
      const bool remains = chance(60);
      out.remainder.push_back(remains ? bytes : 0);
      out.spare.push_back(remains && !chance(10) ? 0 : chance(20) ? 0 : between(0, 500 * kMb));
    }
    return out;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace ebb::models
