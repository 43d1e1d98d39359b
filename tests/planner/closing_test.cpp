#include "planner/closing.hpp"

#include <gtest/gtest.h>

namespace ebb::planner {
namespace {

TEST(Closing, WithATimeOfItsOwnItWaitsForThatLong) {
  for (const Time until : {Time{1000}, kNever}) {
    const Closing closing(true, true, until);
    EXPECT_FALSE(closing.gives_up(true));
    for (const bool silent : {false, true}) EXPECT_EQ(closing.limit(5, silent), until);
  }
}

TEST(Closing, WithoutLowerFilesItWaitsForever) {
  const Closing closing(false, false, {});
  EXPECT_FALSE(closing.gives_up(true));
  EXPECT_EQ(closing.limit(5, true), kNever);
}

TEST(Closing, WithoutATimeSilentFilesEndIt) {
  for (const bool level_is_below : {false, true}) {
    const Closing closing(true, level_is_below, {});
    EXPECT_FALSE(closing.gives_up(false));
    EXPECT_EQ(closing.gives_up(true), level_is_below);  // a local level is waited for: its disk answers
    EXPECT_EQ(closing.limit(5, true), 5);
    EXPECT_EQ(closing.limit(5, false), 5 + kSilentAfter);
  }
}

}  // namespace
}  // namespace ebb::planner
