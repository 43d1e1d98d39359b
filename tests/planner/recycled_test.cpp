#include "planner/recycled.hpp"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

namespace ebb::planner {
namespace {

template <class K>
using Set = std::set<K, std::less<>, Recycled<K>>;

TEST(Recycled, ANodeThatWasGivenBackIsTheNextToBeTaken) {
  Set<int> set;
  const int* const first = &*set.insert(1).first;
  set.erase(1);
  EXPECT_EQ(&*set.insert(2).first, first);
}

TEST(Recycled, ContainersMoveCopyAndSwapWithWhatTheyHold) {
  using Map = std::unordered_map<int, int, std::hash<int>, std::equal_to<>, Recycled<std::pair<const int, int>>>;
  Map a;
  for (int i = 0; i < 1000; ++i) a[i] = i;
  for (int i = 0; i < 500; ++i) a.erase(i);
  Map b = a, c = std::move(a);
  std::swap(b, c);
  for (int i = 0; i < 500; ++i) b[i] = c[i + 500];
  EXPECT_EQ(b.size(), 1000u);
  EXPECT_EQ(c.size(), 500u);
  c = std::move(b);
  EXPECT_EQ(c.at(7), 507);
}

TEST(Recycled, VectorsOfContainersGrow) {
  std::vector<Set<int>> sets;
  for (int i = 0; i < 100; ++i) {
    sets.emplace_back();
    for (Set<int>& set : sets) set.insert(i);
    sets.front().erase(i - 1);
  }
  EXPECT_EQ(sets.front().size(), 1u);
  EXPECT_EQ(sets.back().size(), 1u);
  EXPECT_EQ(sets[50].size(), 50u);
}

}  // namespace
}  // namespace ebb::planner
