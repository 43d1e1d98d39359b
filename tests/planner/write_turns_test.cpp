// The turns of a pool's processes, in random programs.
#include "planner/write_turns.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <ranges>

namespace ebb::planner {
namespace {

TEST(WriteTurns, PartiesThatAlwaysHaveWorkGetTheSameToWithinAPieceWhoeverComesLate) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    WriteTurns turns;
    std::map<WriteTurns::Party, Bytes> served;  // since the last one came
    const Bytes piece = 1 + random() % 100;
    const auto come = [&](WriteTurns::Party party) {
      turns.add(party, party);
      served[party] = 0;
      for (auto& [one, bytes] : served) bytes = 0;
    };
    for (WriteTurns::Party party = 1; party <= 2 + random() % 4; ++party) come(party);
    for (int step = 0; step < 100; ++step) {
      if (step == 50) come(9);
      const WriteTurns::Party party = turns.next().value();
      const Bytes bytes = 1 + random() % piece;
      turns.serve(party, bytes);
      served[party] += bytes;
      const auto [least, most] = std::ranges::minmax(std::views::values(served));
      ASSERT_LE(most - least, 2 * piece) << "step " << step;
    }
  }
}

TEST(WriteTurns, WhoHurriesComesFirstUntilItsWorkIsDone) {
  WriteTurns turns;
  EXPECT_EQ(turns.next(), std::nullopt);
  turns.add(1, 10);
  turns.add(2, 20);
  turns.add(2, 21);
  turns.serve(2, 1000);
  EXPECT_EQ(turns.next(), 10u);
  turns.hurry(2);
  EXPECT_EQ(turns.next(), 20u);
  turns.remove(2, 20);
  turns.end_hurries([](WriteTurns::Party party) { return party == 1; });
  EXPECT_EQ(turns.next(), 21u) << "it still hurries, and its objects come in order";
  turns.end_hurries([](WriteTurns::Party) { return true; });
  EXPECT_EQ(turns.next(), 10u);
  turns.remove(1, 10);
  turns.forget(2);
  EXPECT_EQ(turns.next(), std::nullopt);
}

}  // namespace
}  // namespace ebb::planner
