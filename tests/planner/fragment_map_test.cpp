// Model test: the fragment map against a byte map that knows nothing of fragments.
#include "planner/fragment_map.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <stdexcept>

namespace ebb::policy {
namespace {

// The naive map: who owns each granule.
class NaiveMap {
 public:
  explicit NaiveMap(std::size_t granules) : owner_(granules, FragmentMap::kGap) {}
  bool has_gap(std::size_t size) const { return smallest_gap(size) != SIZE_MAX; }
  std::size_t smallest_gap(std::size_t size) const {
    std::size_t best = SIZE_MAX;
    for (std::size_t i = 0; i < end_;) {
      std::size_t end = i;
      while (end < end_ && owner_[end] == FragmentMap::kGap) ++end;
      if (end - i >= size) best = std::min(best, end - i);
      i = end == i ? i + 1 : end;
    }
    return best;
  }
  std::size_t largest_gap() const {
    std::size_t best = 0, run = 0;
    for (std::size_t i = 0; i < end_; ++i) best = std::max(best, run = owner_[i] == FragmentMap::kGap ? run + 1 : 0);
    return best;
  }
  std::size_t gap_around(std::size_t at) const {
    std::size_t first = at, last = at;
    while (first > 0 && owner_[first - 1] == FragmentMap::kGap) --first;
    while (last < end_ && owner_[last] == FragmentMap::kGap) ++last;
    return last - first;
  }
  void set(std::size_t at, std::size_t size, std::uint32_t owner) {
    for (std::size_t i = at; i < at + size; ++i) owner_.at(i) = owner;
  }
  void shrink(std::size_t granules) { end_ = std::min(end_, granules); }
  std::size_t end() const { return end_; }
  std::size_t free_granules() const {
    return static_cast<std::size_t>(std::count(owner_.begin(), owner_.begin() + static_cast<long>(end_), FragmentMap::kGap));
  }
  bool free(std::size_t at, std::size_t size) const {
    for (std::size_t i = at; i < at + size; ++i)
      if (owner_.at(i) != FragmentMap::kGap) return false;
    return true;
  }

 private:
  std::vector<std::uint32_t> owner_;
  std::size_t end_ = owner_.size();  // of the memory; what lies beyond was placed before that was known
};

TEST(FragmentMap, AgreesWithANaiveOneOverRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    constexpr Bytes kGranule = 16;
    constexpr std::size_t kGranules = 64;
    FragmentMap arena(kGranules * kGranule + 7, kGranule);  // the odd bytes at the end are not used
    NaiveMap naive(kGranules);
    std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> placed;
    std::uint32_t next = 0;
    for (int step = 0; step < 2000; ++step) {
      if (placed.empty() || random() % 5 < 3) {
        const Bytes bytes = random() % (12 * kGranule);
        const Bytes size = arena.footprint(bytes);
        ASSERT_EQ(size % kGranule, 0u);
        ASSERT_GE(size, std::max<Bytes>(bytes, 1));
        const std::size_t smallest = naive.smallest_gap(size / kGranule);
        const auto offset = arena.place(next, size);
        ASSERT_EQ(offset.has_value(), smallest != SIZE_MAX) << "seed " << seed << " step " << step;
        if (!offset) continue;
        ASSERT_TRUE(naive.free(*offset / kGranule, size / kGranule));
        ASSERT_EQ(naive.gap_around(*offset / kGranule), smallest) << "best fit";
        naive.set(*offset / kGranule, size / kGranule, next);
        placed[next++] = {*offset / kGranule, size / kGranule};
      } else {
        auto it = placed.begin();
        std::advance(it, static_cast<long>(random() % placed.size()));
        arena.erase(it->second.first * kGranule);
        naive.set(it->second.first, it->second.second, FragmentMap::kGap);
        placed.erase(it);
      }
      if (seed > 10 && random() % 400 == 0) {
        naive.shrink(naive.end() - random() % (naive.end() / 3 + 1));
        arena.shrink(naive.end() * kGranule + random() % kGranule);
      }
      arena.check();
      ASSERT_EQ(arena.free(), naive.free_granules() * kGranule);
      std::size_t beyond = 0;
      for (const auto& [owner, place] : placed) beyond += place.first + place.second > naive.end();
      ASSERT_EQ(arena.owners_beyond().size(), beyond);
      ASSERT_EQ(arena.largest_gap(), naive.largest_gap() * kGranule);
    }
  }
}

TEST(FragmentMap, ABrokenContractThrows) {
  FragmentMap arena(100, 10);
  EXPECT_THROW(arena.erase(0), std::logic_error);  // a gap
  ASSERT_EQ(arena.place(1, 30), 0u);
  EXPECT_THROW(arena.erase(10), std::logic_error);  // nothing starts there
  ASSERT_EQ(arena.place(2, 70), 30u);
  EXPECT_EQ(arena.used(), 100u);
  EXPECT_FALSE(arena.place(3, 10));
  arena.shrink(50);
  EXPECT_THROW(arena.shrink(60), std::logic_error);
}

TEST(FragmentMap, WhatWasPlacedBeyondTheEndLeavesNoGap) {
  FragmentMap arena(100, 10);
  for (std::uint32_t owner : {1u, 2u, 3u}) ASSERT_TRUE(arena.place(owner, 30));
  arena.shrink(45);  // the end lies in the second
  EXPECT_EQ(arena.capacity(), 40u);
  EXPECT_EQ(arena.used(), 90u);
  EXPECT_EQ(arena.free(), 0u);
  EXPECT_EQ(arena.owners_beyond(), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(arena.usable(arena.fragments()[1]), 10u);
  EXPECT_EQ(arena.usable(arena.fragments()[2]), 0u);
  arena.erase(60);
  EXPECT_EQ(arena.largest_gap(), 0u);
  arena.erase(30);
  EXPECT_EQ(arena.largest_gap(), 10u);
  arena.erase(0);
  EXPECT_EQ(arena.largest_gap(), 40u);
  arena.check();
  arena.shrink(0);
  EXPECT_EQ(arena.free(), 0u);
  EXPECT_FALSE(arena.place(4, 10));
}

}  // namespace
}  // namespace ebb::policy
