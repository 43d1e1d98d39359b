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

// The naive map: who owns each grain, and up to where each segment can be used, in grains.
class NaiveMap {
 public:
  explicit NaiveMap(std::size_t granule) : granule_(granule) {}
  void lend(std::size_t segment, std::size_t grains) {
    if (segment == segments_.size()) {
      segments_.push_back({owner_.size(), grains, 0});
      owner_.resize(owner_.size() + grains, FragmentMap::kGap);
    }
    segments_[segment].usable = grains;
  }
  void recall(std::size_t segment, std::size_t grains) { segments_[segment].usable = grains; }
  std::size_t segments() const { return segments_.size(); }
  std::size_t extent(std::size_t segment) const { return segments_[segment].extent; }
  std::size_t usable(std::size_t segment) const { return segments_[segment].usable; }

  // Of each run of free grains, where it begins and how long it is.
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
  // The grains of the whole granules from `at` on.
  std::size_t whole(std::size_t at, std::size_t length) const {
    const std::size_t first = (at + granule_ - 1) / granule_ * granule_, end = (at + length) / granule_ * granule_;
    return first < end ? end - first : 0;
  }
  // How much the gap should hold that takes so many grains: whole granules, or (less than one) else what none fits in.
  std::size_t best_gap(std::size_t size, bool narrow) const {
    std::size_t best = SIZE_MAX;
    for (const auto& [at, length] : gaps()) {
      const std::size_t holds = narrow ? (whole(at, length) == 0 ? length : 0) : whole(at, length);
      if (holds >= (narrow ? size : std::max(size, granule_))) best = std::min(best, holds);
    }
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
  std::size_t granule_;
  std::vector<std::uint32_t> owner_;
  std::vector<Segment> segments_;
};

TEST(FragmentMap, AgreesWithANaiveOneOverRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const Bytes grain = seed % 2 == 0 ? kGranule : kGranule / 4;
    const std::size_t in_granule = kGranule / grain;
    FragmentMap map(kGranule, grain);
    NaiveMap naive(in_granule);
    const auto lend = [&](std::size_t segment, std::size_t granules) {
      map.lend(static_cast<SegmentId>(segment), granules * kGranule);
      naive.lend(segment, granules * in_granule);
    };
    lend(0, 16 + random() % 64);
    std::map<std::uint32_t, std::pair<std::size_t, std::size_t>> placed;
    std::uint32_t next = 0;
    for (int step = 0; step < 2000; ++step) {
      if (placed.empty() || random() % 5 < 3) {
        const Bytes bytes = random() % (random() % 2 == 0 ? kGranule : 12 * kGranule);
        const Bytes size = map.footprint(bytes);
        const bool small = size < kGranule;
        ASSERT_EQ(size % (small ? grain : kGranule), 0u);
        ASSERT_GE(size, std::max<Bytes>(bytes, 1));
        ASSERT_LT(size, std::max<Bytes>(bytes, 1) + (bytes <= kGranule - grain ? grain : kGranule));
        const auto gaps = naive.gaps();
        const std::size_t grains = size / grain;
        const std::size_t narrow = small ? naive.best_gap(grains, true) : SIZE_MAX;
        const std::size_t best = narrow != SIZE_MAX ? narrow : naive.best_gap(grains, false);
        const auto offset = map.place(next, size);
        ASSERT_EQ(offset.has_value(), best != SIZE_MAX) << "seed " << seed << " step " << step;
        if (offset) {
          const std::size_t at = *offset / grain;
          const auto [first, length] = *std::prev(gaps.upper_bound(at));
          ASSERT_LE(at + grains, first + length) << "in a gap";
          const std::size_t whole = naive.whole(first, length);
          ASSERT_EQ(narrow != SIZE_MAX ? length : whole, best) << "best fit";
          ASSERT_TRUE(narrow == SIZE_MAX || whole == 0) << "granules stay whole";
          ASSERT_TRUE(small || *offset % kGranule == 0);
          const std::size_t left =
              naive.whole(first, at - first) + naive.whole(at + grains, first + length - (at + grains));
          const std::size_t head = (in_granule - first % in_granule) % in_granule, tail = (first + length) % in_granule;
          const bool beside = whole == 0 || (small && std::max(head, tail) >= grains);
          ASSERT_EQ(left, beside ? whole : whole - (small ? in_granule : grains));
          naive.set(at, grains, next);
          placed[next++] = {at, grains};
        }
      } else {
        auto it = placed.begin();
        std::advance(it, static_cast<long>(random() % placed.size()));
        map.erase(it->second.first * grain);
        naive.set(it->second.first, it->second.second, FragmentMap::kGap);
        placed.erase(it);
      }
      if (seed > 10 && random() % 100 == 0) {
        const std::size_t s = random() % naive.segments(), usable = naive.usable(s) / in_granule;
        const std::size_t left = random() % (usable + 1);
        map.recall(static_cast<SegmentId>(s), left * kGranule + (left < usable ? random() % kGranule : 0));
        naive.recall(s, left * in_granule);
      }
      if (seed > 20 && random() % 100 == 0) {
        const std::size_t s = random() % naive.segments();
        const std::size_t usable = naive.usable(s) / in_granule;
        const std::size_t more = (naive.extent(s) / in_granule - usable) * (random() % 3) / 2;
        if (more > 0) lend(s, usable + more);
      }
      if (seed > 20 && naive.segments() < 5 && random() % 300 == 0) lend(naive.segments(), 1 + random() % 40);
      map.check();
      const auto gaps = naive.gaps();
      std::size_t free = 0, largest = 0, narrow = 0, beyond = 0, most = 0;
      for (const auto& [at, length] : gaps) {
        free += length, largest = std::max(largest, naive.whole(at, length));
        narrow = std::max(narrow, std::min(length, in_granule - 1));
      }
      for (const auto& [owner, place] : placed) beyond += naive.beyond(place.first, place.second);
      for (std::size_t s = 0; s < naive.segments(); ++s) most = std::max(most, naive.usable(s));
      ASSERT_EQ(map.free(), free * grain);
      ASSERT_EQ(map.largest_gap(), (largest > 0 ? largest : narrow) * grain);
      ASSERT_EQ(map.largest_segment(), most * grain);
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
