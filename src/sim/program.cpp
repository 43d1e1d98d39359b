#include "sim/program.hpp"

#include <algorithm>
#include <numeric>

#include "sim/random.hpp"

namespace ebb::sim {

Shot Shot::equal(std::size_t n, Bytes bytes) {
  Shot shot;
  shot.sizes.assign(n, bytes);
  return shot;
}

std::vector<Version> Shot::restore_order() const {
  if (!given_order.empty()) return given_order;
  std::vector<Version> out(sizes.size());
  std::iota(out.begin(), out.end(), Version{0});
  if (order == Order::reverse) std::reverse(out.begin(), out.end());
  if (order == Order::irregular) {
    Random random(seed);
    for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  }
  return out;
}

Program program_of(const Shot& shot, TierIndex lowest_tier, HistoryId history) {
  Program out{.history = history, .start = 0, .ops = {}};
  const std::vector<Version> order = shot.restore_order();
  auto computing = [&](const std::vector<Time>& slept, std::size_t i) {
    const Time dt = i < slept.size() ? slept[i] : shot.interval;
    if (dt > 0) out.ops.push_back(op::sleep(dt));
    if (shot.barriers) out.ops.push_back(op::barrier());
  };
  if (shot.hints == Shot::Hints::all) out.ops.push_back(op::hint(order));
  for (std::size_t i = 0; i < shot.sizes.size(); ++i) {
    computing(shot.forward, i);
    out.ops.push_back(op::checkpoint(static_cast<Version>(i), shot.sizes[i]));
  }
  if (shot.wait) out.ops.push_back(op::wait_all(lowest_tier));
  out.ops.push_back(op::start_prefetch());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!shot.compute_after_restore) computing(shot.backward, i);
    if (shot.hints == Shot::Hints::one && i + 1 < order.size()) out.ops.push_back(op::hint({order[i + 1]}));
    out.ops.push_back(op::restore(order[i]));
    if (shot.compute_after_restore) computing(shot.backward, i);
  }
  return out;
}

}  // namespace ebb::sim
