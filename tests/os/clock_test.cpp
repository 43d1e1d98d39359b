#include "os/clock.hpp"

#include <gtest/gtest.h>

#include "tests/doubles/manual_clock.hpp"

namespace ebb::os {
namespace {

TEST(SteadyClock, never_goes_back_and_does_move) {
  const SteadyClock clock;
  const std::int64_t start = clock.now();
  std::int64_t last = start;
  while (last == start) {
    const std::int64_t now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ManualClock, stands_until_it_is_moved) {
  doubles::ManualClock clock(5);
  EXPECT_EQ(clock.now(), 5);
  EXPECT_EQ(clock.now(), 5);
  clock.advance(7);
  EXPECT_EQ(clock.now(), 12);
}

}  // namespace
}  // namespace ebb::os
