// Model test: the fragment map against a byte map that knows nothing of fragments.
#include "planner/fragment_map.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <stdexcept>

namespace ebb::planner {
namespace {

constexpr Bytes kGranule = 16;

// The naive map: who owns each granule, and up to where each segment can be used.
class NaiveMap {
 public:
  void lend(std::size_t segment, std::size_t granules) {
    if (segment == segments_.size()) {
      segments_.push_back({owner_.size(), granules, 0});
      owner_.resize(owner_.size() + granules, FragmentMap::kGap);
    }
    segments_[segment].usable = granules;
  }
  void recall(std::size_t segment, std::size_t granules) { segments_[segment].usable = granules; }
  std::size_t segments() const { return segments_.size(); }
  std::size_t extent(std::size_t segment) const { return segments_[segment].extent; }
  std::size_t usable(std::size_t segment) const { return segments_[segment].usable; }

  // Of each run of free granules, where it begins and how long it is.
  std::map<std::size_t, std::size_t> gaps() const {
    std::map<std::size_t, std::size_t> found;
    for (const Segment& s : segments_)
      for (std::size_t at = s.first; at < s.first + s.usable;) {
        std::size_t end = at;
        while (end < s.first + s.usable && owner_[end] == FragmentMap::kGap) ++end;
        if (end > at) found[at] = end - at;
        at = std::max(end, at + 1);
      }
    return found;
  }
  std::size_t smallest_gap(std::size_t size) const {
    std::size_t best = SIZE_MAX;
    for (const auto& [at, length] : gaps())
      if (length >= size) best = std::min(best, length);
    return best;
  }
  bool beyond(std::size_t at, std::size_t size) const {
    for (const Segment& s : segments_)
      if (at >= s.first && at < s.first + s.extent) return at + size > s.first + s.usable;
    return true;
  }
  void set(std::size_t at, std::size_t size, std::uint32_t owner) {
    for (std::size_t i = at; i < at + size; ++i) owner_.at(i) = owner;
  }

 private:
  struct Segment {
    std::size_t first, extent, usable;
  };
  std::vector<std::uint32_t> owner_;
  std::vector<Segment> segments_;
};

TEST(FragmentMap, AgreesWithANaiveOneOverRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    FragmentMap map(kGranule);
    NaiveMap naive;
    const auto lend = [&](std::size_t segment, std::size_t granules) {
      map.lend(static_cast<SegmentId>(segment), granules * kGranule);
      naive.lend(segment, granules);
    };
    lend(0, 16 + random() % 64);
    std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> placed;
    std::uint32_t next = 0;
    for (int step = 0; step < 2000; ++step) {
      if (placed.empty() || random() % 5 < 3) {
        const Bytes bytes = random() % (12 * kGranule);
        const Bytes size = map.footprint(bytes);
        ASSERT_EQ(size % kGranule, 0u);
        ASSERT_GE(size, std::max<Bytes>(bytes, 1));
        const auto gaps = naive.gaps();
        const std::size_t smallest = naive.smallest_gap(size / kGranule);
        const auto offset = map.place(next, size);
        ASSERT_EQ(offset.has_value(), smallest != SIZE_MAX) << "seed " << seed << " step " << step;
        if (offset) {
          ASSERT_TRUE(gaps.contains(*offset / kGranule)) << "at the start of a gap";
          ASSERT_EQ(gaps.at(*offset / kGranule), smallest) << "best fit";
          naive.set(*offset / kGranule, size / kGranule, next);
          placed[next++] = {*offset / kGranule, size / kGranule};
        }
      } else {
        auto it = placed.begin();
        std::advance(it, static_cast<long>(random() % placed.size()));
        map.erase(it->second.first * kGranule);
        naive.set(it->second.first, it->second.second, FragmentMap::kGap);
        placed.erase(it);
      }
      if (seed > 10 && random() % 100 == 0) {
        const std::size_t s = random() % naive.segments(), left = random() % (naive.usable(s) + 1);
        map.recall(static_cast<SegmentId>(s), left * kGranule + (left < naive.usable(s) ? random() % kGranule : 0));
        naive.recall(s, left);
      }
      if (seed > 20 && random() % 100 == 0) {
        const std::size_t s = random() % naive.segments();
        const std::size_t more = (naive.extent(s) - naive.usable(s)) * (random() % 3) / 2;
        if (more > 0) lend(s, naive.usable(s) + more);
      }
      if (seed > 20 && naive.segments() < 5 && random() % 300 == 0) lend(naive.segments(), 1 + random() % 40);
      map.check();
      const auto gaps = naive.gaps();
      std::size_t free = 0, largest = 0, beyond = 0, most = 0;
      for (const auto& [at, length] : gaps) free += length, largest = std::max(largest, length);
      for (const auto& [owner, place] : placed) beyond += naive.beyond(place.first, place.second);
      for (std::size_t s = 0; s < naive.segments(); ++s) most = std::max(most, naive.usable(s));
      ASSERT_EQ(map.free(), free * kGranule);
      ASSERT_EQ(map.largest_gap(), largest * kGranule);
      ASSERT_EQ(map.largest_segment(), most * kGranule);
      ASSERT_EQ(map.owners_beyond().size(), beyond);
    }
  }
}

TEST(FragmentMap, ABrokenContractThrows) {
  FragmentMap map(10);
  map.lend(0, 100);
  EXPECT_THROW(map.erase(0), std::logic_error);  // a gap
  ASSERT_EQ(map.place(1, 30), 0u);
  EXPECT_THROW(map.erase(10), std::logic_error);  // nothing starts there
  ASSERT_EQ(map.place(2, 70), 30u);
  EXPECT_EQ(map.used(), 100u);
  EXPECT_FALSE(map.place(3, 10));
  map.recall(0, 50);
  EXPECT_THROW(map.recall(0, 60), std::logic_error);
  EXPECT_THROW(map.lend(0, 40), std::logic_error) << "less than there is";
  EXPECT_THROW(map.lend(0, 110), std::logic_error) << "more than its extent";
  EXPECT_THROW(map.lend(2, 10), std::logic_error) << "a number was left out";
}

TEST(FragmentMap, WhatWasPlacedBeyondTheEndLeavesNoGapUntilThatIsLentAgain) {
  FragmentMap map(10);
  map.lend(0, 105);  // the odd bytes at the end are not used
  for (std::uint32_t owner : {1u, 2u, 3u}) ASSERT_TRUE(map.place(owner, 30));
  map.recall(0, 45);  // the end is in the second
  EXPECT_EQ(map.lent(), 45u);
  EXPECT_EQ(map.capacity(), 40u);
  EXPECT_EQ(map.used(), 90u);
  EXPECT_EQ(map.free(), 0u);
  EXPECT_EQ(map.owners_beyond(), (std::vector<std::uint32_t>{3, 2}));
  EXPECT_EQ(map.usable(std::next(map.fragments().begin())->second), 10u);
  EXPECT_EQ(map.usable(std::prev(map.fragments().end())->second), 0u);
  map.erase(60);
  EXPECT_EQ(map.largest_gap(), 0u);
  map.erase(30);
  EXPECT_EQ(map.largest_gap(), 10u);
  map.lend(0, 105);
  EXPECT_EQ(map.largest_gap(), 70u);
  map.recall(0, 0);
  EXPECT_EQ(map.free(), 0u);
  EXPECT_FALSE(map.place(4, 10));
  map.check();
}

TEST(FragmentMap, NothingSpansTwoSegments) {
  FragmentMap map(10);
  map.lend(0, 30);
  map.lend(1, 30);
  EXPECT_EQ(map.free(), 60u);
  EXPECT_FALSE(map.place(1, 40)) << "they are side by side, and two all the same";
  ASSERT_EQ(map.place(1, 30), 0u);
  ASSERT_EQ(map.place(2, 30), 30u);
  map.erase(0);
  map.erase(30);
  EXPECT_EQ(map.largest_gap(), 30u);
  EXPECT_EQ(map.segment_of(29), 0u);
  EXPECT_EQ(map.segment_of(30), 1u);
  map.check();
}

}  // namespace
}  // namespace ebb::planner
