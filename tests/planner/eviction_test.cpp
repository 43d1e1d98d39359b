// The window chooser against one that tries every window (hpdc23 sec. 4.2, algorithm 1).
#include "planner/eviction.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <tuple>

namespace ebb::planner {
namespace {

using Key = std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::uint64_t>;

// What makes one window better than another, computed from scratch.
Key key_of(EvictionPolicy policy, std::span<const FragmentScore> members) {
  std::uint64_t sum = 0, nearest = 0, hinted = 0, touched = 0, written = 0;
  std::int64_t distances = 0;
  for (const FragmentScore& f : members) {
    sum += static_cast<std::uint64_t>(f.wait);
    if (f.gap) continue;
    touched = std::max(touched, f.touched);
    written = std::max(written, f.written);
    if (f.distance == FragmentScore::kUnhinted) continue;
    ++hinted;
    distances += f.distance;
    nearest = std::max(nearest, UINT64_MAX - static_cast<std::uint64_t>(f.distance));
  }
  switch (policy) {
    case EvictionPolicy::score: return {sum, nearest, 0, touched};
    case EvictionPolicy::score_paper: return {sum, hinted, -distances, touched};
    case EvictionPolicy::lru: return {0, 0, 0, touched};
    case EvictionPolicy::fifo: return {0, 0, 0, written};
  }
  return {};
}

class EveryPolicy : public testing::TestWithParam<EvictionPolicy> {};

TEST_P(EveryPolicy, ChoosesTheBestOfAllWindows) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<FragmentScore> f(1 + random() % 24);
    for (std::size_t i = 0; i < f.size(); ++i) {
      f[i].size = (1 + random() % 8) << 20;
      f[i].border = seed % 2 && random() % 6 == 0;
      f[i].gap = random() % 5 == 0;
      if (f[i].gap) continue;
      f[i].never = random() % 7 == 0;
      f[i].wait = random() % 2 ? 0 : static_cast<Time>(random() % 1000);
      if (random() % 3) f[i].distance = static_cast<std::int64_t>(random() % 40);
      f[i].touched = random() % 100;
      f[i].written = random() % 100;
    }
    const Bytes size = (1 + random() % 20) << 20;
    std::optional<Key> best;
    for (std::size_t first = 0; first < f.size(); ++first) {
      Bytes held = 0;
      for (std::size_t last = first; last < f.size() && !f[last].never; ++last) {
        if (f[last].border && last > first) break;  // no window spans two segments
        held += f[last].size;
        if (held < size) continue;
        const Key key = key_of(GetParam(), std::span(f).subspan(first, last + 1 - first));
        if (!best || key < *best) best = key;
        break;  // a longer window from the same start is never better
      }
    }
    const auto chosen = WindowChooser(GetParam()).choose(f, size);
    ASSERT_EQ(chosen.has_value(), best.has_value()) << "seed " << seed;
    if (!chosen) continue;
    const auto members = std::span(f).subspan(chosen->first, chosen->last - chosen->first);
    Bytes held = 0;
    Time longest = 0;
    for (const FragmentScore& m : members) {
      ASSERT_FALSE(m.never);
      held += m.size;
      longest = std::max(longest, m.wait);
    }
    EXPECT_GE(held, size);
    EXPECT_EQ(chosen->wait, longest);
    EXPECT_EQ(key_of(GetParam(), members), *best) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy,
                         testing::Values(EvictionPolicy::score, EvictionPolicy::score_paper, EvictionPolicy::lru,
                                         EvictionPolicy::fifo));

TEST(Eviction, TakesATailWindow) {  // algorithm 1 as printed stops before it
  std::vector<FragmentScore> f(3);
  for (auto& x : f) x.size = 1 << 20, x.wait = 5;
  f[2].gap = true;
  f[2].wait = 0;
  const auto window = WindowChooser(EvictionPolicy::score).choose(f, 1 << 20);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->first, 2u);
  EXPECT_EQ(window->wait, 0);
}

TEST(Eviction, PrefersWhatNoHintNamesThenWhatIsNeededLatest) {
  std::vector<FragmentScore> f(3);
  for (auto& x : f) x.size = 1 << 20;
  f[0].distance = 9;
  f[1].distance = 30;
  f[2].distance = 2;
  for (auto policy : {EvictionPolicy::score, EvictionPolicy::score_paper}) {
    EXPECT_EQ(WindowChooser(policy).choose(f, 1 << 20)->first, 1u);
    auto g = f;
    g[2].distance = FragmentScore::kUnhinted;
    EXPECT_EQ(WindowChooser(policy).choose(g, 1 << 20)->first, 2u);
  }
}

}  // namespace
}  // namespace ebb::planner
