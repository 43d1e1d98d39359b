#pragma once
// Whether remainders can be sent in time, by trying every cut of the network. It shares no code with src/models: the
// capacity between two GPUs is computed here from a formula.
#include <algorithm>
#include <vector>

#include "models/flow.hpp"

namespace ebb::models {

class Cuts {
 public:
  __extension__ typedef __int128 Amount;  // bytes times nanoseconds a second

  // `ends`: by when each GPU's transfers must have ended. They may differ only where no link serves several GPUs.
  Cuts(const PeerLinks& links, const Overflow& overflow, const std::vector<Time>& ends)
      : links_(links), overflow_(overflow), ends_(ends), n_(links.gpus()) {
    all_ = 0;
    for (Bytes bytes : overflow.remainder) all_ += kBillion * bytes;
    least_ = all_;  // the cut right behind the source
    for (unsigned x = 0; x < 1u << n_; ++x)
      for (unsigned in = 0; in < 1u << n_; ++in)
        for (unsigned host = 0; host < 1u << n_; ++host)
          for (int memory = 0; memory < 2; ++memory) take(x, in, host, memory);
  }
  bool pass() const { return least_ >= all_; }
  // Those on the source's side of every least cut: some of their bytes are left behind by some best plan.
  unsigned waiting() const { return waiting_; }

 private:
  static constexpr Amount kBillion = 1'000'000'000, kNever = Amount{1} << 120;

  Amount carried(Rate rate, int gpu) const { return static_cast<Amount>(rate) * ends_[static_cast<std::size_t>(gpu)]; }
  static Rate at(const std::vector<Rate>& rates, int i) { return rates[static_cast<std::size_t>(i)]; }

  // The cut with these on the source's side: remainders, what comes in to GPUs, links to the host, host memory.
  void take(unsigned x, unsigned in, unsigned host, int memory) {
    const auto has = [](unsigned set, int i) { return (set >> i & 1) != 0; };
    Amount cut = 0;
    for (int i = 0; i < n_; ++i) {
      const Bytes remainder = at(overflow_.remainder, i);
      if (!has(x, i)) {
        cut += kBillion * remainder;
      } else {
        if (remainder == 0) return;  // nothing starts there
        if (!has(host, i)) return;   // its own link takes all that it gives
        Amount out = 0;
        for (int j = 0; j < n_; ++j)
          if (j != i && !has(in, j)) out += carried(links_.pair(i, j), i);
        if (at(links_.egress, i) > 0) out = std::min(out, carried(at(links_.egress, i), i));
        cut += out;
      }
      if (has(in, i)) {
        Amount on = kBillion * at(overflow_.spare, i);
        if (links_.relays && !has(host, i)) on = kNever;
        if (at(links_.ingress, i) > 0) on = std::min(on, carried(at(links_.ingress, i), i));
        cut += on;
      }
      if (has(host, i) && memory == 0) cut += carried(at(links_.host, i), i);
    }
    if (memory != 0) cut += links_.host_memory > 0 ? carried(links_.host_memory, 0) : kNever;
    if (cut < least_) waiting_ = x;
    if (cut == least_) waiting_ &= x;
    least_ = std::min(least_, cut);
  }

  const PeerLinks& links_;
  const Overflow& overflow_;
  const std::vector<Time>& ends_;
  int n_;
  Amount all_ = 0, least_ = 0;
  unsigned waiting_ = 0;
};

}  // namespace ebb::models
