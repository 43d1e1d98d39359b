#include "planner/eviction.hpp"

#include <algorithm>
#include <tuple>

namespace ebb::planner {
namespace {

// Larger is needed sooner; 0: no hint names it.
std::uint64_t nearness_of(const FragmentScore& f) {
  if (f.gap || f.distance == FragmentScore::kUnhinted) return 0;
  return UINT64_MAX - static_cast<std::uint64_t>(std::max<std::int64_t>(0, f.distance));
}

// The paper's s-score, smaller is better: fewer hinted members first, then the larger sum of distances.
std::uint64_t paper_worth(std::uint64_t hinted, std::int64_t distance_sum) {
  constexpr std::uint64_t kMost = (1ull << 40) - 1;
  return (hinted << 40) + (kMost - std::min(kMost, static_cast<std::uint64_t>(distance_sum)));
}

// A sliding maximum over indices that enter at the right and leave at the left.
template <class Key>
class SlidingMax {
 public:
  SlidingMax(std::vector<std::uint32_t>& memory, Key key) : queue_(memory), key_(key) { clear(); }
  void clear() {
    queue_.clear();
    head_ = 0;
  }
  void enter(std::uint32_t i) {
    while (queue_.size() > head_ && key_(queue_.back()) <= key_(i)) queue_.pop_back();
    queue_.push_back(i);
  }
  void leave(std::uint32_t i) {
    if (head_ < queue_.size() && queue_[head_] == i) ++head_;
  }
  auto max() const { return key_(queue_[head_]); }

 private:
  std::vector<std::uint32_t>& queue_;
  std::size_t head_ = 0;
  Key key_;
};

// Smaller is better, compared member by member.
struct Cost {
  std::uint64_t wait = 0, worth = 0, recency = 0;
  bool operator<(const Cost& o) const { return std::tie(wait, worth, recency) < std::tie(o.wait, o.worth, o.recency); }
};

}  // namespace

std::optional<Window> WindowChooser::choose(std::span<const FragmentScore> f, Bytes size, Bytes granule) {
  const bool fifo = policy_ == EvictionPolicy::fifo;
  SlidingMax waits(waits_, [&](std::uint32_t i) { return f[i].wait; });
  SlidingMax recents(recents_, [&](std::uint32_t i) { return f[i].gap ? 0 : fifo ? f[i].written : f[i].touched; });
  SlidingMax nearest(nearest_, [&](std::uint32_t i) { return nearness_of(f[i]); });

  Bytes held = 0;
  std::uint64_t wait_sum = 0, hinted = 0;
  std::int64_t distance_sum = 0;
  auto add = [&](const FragmentScore& x, std::int64_t sign) {
    held += static_cast<Bytes>(sign) * x.size;
    wait_sum += static_cast<std::uint64_t>(sign * x.wait);
    if (!x.gap && x.distance != FragmentScore::kUnhinted) {
      hinted += static_cast<std::uint64_t>(sign);
      distance_sum += sign * x.distance;
    }
  };

  std::optional<Window> best;
  Cost best_cost;
  std::size_t first = 0;
  const auto begin_at = [&](std::size_t next, std::size_t last) {
    while (first < last) add(f[first++], -1);
    first = next;
    waits.clear();
    recents.clear();
    nearest.clear();
  };
  const auto holds = [&](std::size_t last) {
    if (held < size || size % granule != 0) return held >= size;
    const Bytes ragged = (f[first].offset + granule - 1) / granule * granule - f[first].offset;
    return held >= size + ragged + (f[last].offset + f[last].size) % granule;
  };
  for (std::size_t last = 0; last < f.size(); ++last) {
    if (f[last].border) begin_at(last, last);
    if (f[last].never) {
      begin_at(last + 1, last);
      continue;
    }
    add(f[last], 1);
    waits.enter(static_cast<std::uint32_t>(last));
    recents.enter(static_cast<std::uint32_t>(last));
    nearest.enter(static_cast<std::uint32_t>(last));
    while (holds(last)) {
      Cost cost{.wait = 0, .worth = 0, .recency = recents.max()};
      if (policy_ == EvictionPolicy::score || policy_ == EvictionPolicy::score_paper) {
        cost.wait = wait_sum;
        cost.worth = policy_ == EvictionPolicy::score ? nearest.max() : paper_worth(hinted, distance_sum);
      }
      if (!best || cost < best_cost) {
        best = Window{first, last + 1, waits.max()};
        best_cost = cost;
      }
      waits.leave(static_cast<std::uint32_t>(first));
      recents.leave(static_cast<std::uint32_t>(first));
      nearest.leave(static_cast<std::uint32_t>(first));
      add(f[first++], -1);
    }
  }
  return best;
}

}  // namespace ebb::planner
