#include "storage/scratch/extent_allocator.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <stdexcept>

namespace ebb::storage {
namespace {

// The naive one: a flag for each block.
class Model {
 public:
  explicit Model(std::size_t blocks) : used_(blocks) {}
  std::size_t free_blocks() const { return static_cast<std::size_t>(std::ranges::count(used_, false)); }
  std::size_t largest_gap() const {
    std::size_t largest = 0, run = 0;
    for (const bool used : used_) largest = std::max(largest, run = used ? 0 : run + 1);
    return largest;
  }
  // Where first fit puts `blocks` in one piece.
  std::optional<std::size_t> first_fit(std::size_t blocks) const {
    std::size_t run = 0;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      run = used_[i] ? 0 : run + 1;
      if (run == blocks) return i + 1 - blocks;
    }
    return {};
  }
  // Turns a range from free to used or back; false if some of it was not so before.
  bool set(std::size_t first, std::size_t blocks, bool used) {
    for (std::size_t i = first; i < first + blocks; ++i) {
      if (i >= used_.size() || used_[i] == used) return false;
      used_[i] = used;
    }
    return true;
  }

 private:
  std::vector<bool> used_;
};

TEST(ExtentAllocator, equals_a_naive_one_over_random_programs) {
  constexpr std::uint64_t kUnit = 4096, kBlocks = 97;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    ExtentAllocator real(kBlocks * kUnit);
    Model model(kBlocks);
    std::vector<std::vector<Extent>> objects;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0 || objects.empty()) {
        const std::uint64_t blocks = random() % (random() % 4 == 0 ? 60 : 12);
        const std::size_t free = model.free_blocks();
        const auto one = blocks ? model.first_fit(blocks) : std::nullopt;
        const auto extents = real.allocate(blocks * kUnit);
        ASSERT_EQ(extents.has_value(), blocks <= free) << "refused only when too little is free";
        if (!extents) continue;
        if (one) {
          ASSERT_EQ(extents->size(), 1u);
          ASSERT_EQ(extents->front().offset, *one * kUnit);
        }
        std::uint64_t sum = 0;
        for (const Extent& extent : *extents) {
          ASSERT_GT(extent.length, 0u);
          ASSERT_EQ(extent.offset % kUnit + extent.length % kUnit, 0u);
          ASSERT_TRUE(model.set(extent.offset / kUnit, extent.length / kUnit, true)) << "overlap";
          sum += extent.length;
        }
        ASSERT_EQ(sum, blocks * kUnit);
        objects.push_back(*extents);
      } else {
        std::swap(objects[random() % objects.size()], objects.back());
        std::ranges::shuffle(objects.back(), random);
        for (const Extent& extent : objects.back()) {
          real.free(extent);
          ASSERT_TRUE(model.set(extent.offset / kUnit, extent.length / kUnit, false));
        }
        objects.pop_back();
      }
      ASSERT_EQ(real.free_bytes(), model.free_blocks() * kUnit);
      ASSERT_EQ(real.largest_gap(), model.largest_gap() * kUnit) << "gaps that touch are one";
    }
  }
}

TEST(ExtentAllocator, splits_over_the_longest_gaps) {
  ExtentAllocator space(100);
  const auto all = space.allocate(100).value();
  ASSERT_EQ(all, (std::vector<Extent>{{0, 100}}));
  for (const Extent& gap : {Extent{0, 10}, Extent{20, 5}, Extent{30, 30}}) space.free(gap);
  EXPECT_EQ(space.allocate(38).value(), (std::vector<Extent>{{30, 30}, {0, 8}}));
  EXPECT_FALSE(space.allocate(8));
  EXPECT_EQ(space.allocate(7).value(), (std::vector<Extent>{{20, 5}, {8, 2}}));
  EXPECT_EQ(space.free_bytes(), 0u);
}

TEST(ExtentAllocator, freeing_what_is_not_in_use_breaks_the_contract) {
  ExtentAllocator space(100);
  static_cast<void>(space.allocate(50));
  space.free({10, 10});
  for (const Extent& wrong : {Extent{10, 10}, Extent{5, 6}, Extent{19, 2}, Extent{0, 100}, Extent{45, 10},
                              Extent{100, 1}, Extent{UINT64_MAX, 2}}) {
    EXPECT_THROW(space.free(wrong), std::logic_error) << wrong.offset;
  }
  space.free({0, 0});
  EXPECT_EQ(space.free_bytes(), 60u);
}

}  // namespace
}  // namespace ebb::storage
