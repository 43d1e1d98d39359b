// Model test: the queue of hints against a plain list.
#include "planner/restore_order.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <list>
#include <random>

namespace ebb::planner {
namespace {

std::vector<std::uint32_t> walk(const RestoreOrder& order) {
  std::vector<std::uint32_t> all;
  for (auto p = order.head(); p < order.tail(); ++p)
    if (order.at(p) != RestoreOrder::kWithdrawn) all.push_back(order.at(p));
  return all;
}

TEST(RestoreOrder, AgreesWithAPlainListOverRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    RestoreOrder order;
    std::list<std::uint32_t> naive;
    for (int step = 0; step < 500; ++step) {
      const auto who = static_cast<std::uint32_t>(random() % 12);
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          order.append(who);
          naive.push_back(who);
          break;
        case 3:
          order.prepend(who);
          naive.push_front(who);
          break;
        case 7:
          if (random() % 20 == 0)
            order.clear(), naive.clear();
          else if (const auto heir = static_cast<std::uint32_t>(random() % 12); order.count(heir) == 0) {
            order.rename(who, heir);
            std::replace(naive.begin(), naive.end(), who, heir);
          }
          break;
        default: {
          const auto it = std::find(naive.begin(), naive.end(), who);
          ASSERT_EQ(order.remove_first(who), it != naive.end());
          if (it != naive.end()) naive.erase(it);
        }
      }
      ASSERT_EQ(walk(order), std::vector(naive.begin(), naive.end())) << "seed " << seed << " step " << step;
      ASSERT_EQ(order.size(), naive.size());
      if (!naive.empty()) {
        ASSERT_EQ(order.at(order.head()), naive.front());
      }
      // Positions compare as first occurrences do.
      for (std::uint32_t a = 0; a < 12; ++a) {
        const auto in_a = std::find(naive.begin(), naive.end(), a);
        ASSERT_EQ(order.count(a), static_cast<std::uint32_t>(std::count(naive.begin(), naive.end(), a)));
        ASSERT_EQ(order.first(a) == RestoreOrder::kNone, in_a == naive.end());
        for (std::uint32_t b = 0; b < 12; ++b) {
          const auto in_b = std::find(naive.begin(), naive.end(), b);
          if (in_a == naive.end() || in_b == naive.end()) continue;
          ASSERT_EQ(order.first(a) < order.first(b),
                    std::distance(naive.begin(), in_a) < std::distance(naive.begin(), in_b));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ebb::planner
