#include "planner/record_choice.hpp"

#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace ebb::planner {
namespace {

RecordChoice::Sum sum(unsigned value) { return {std::byte(value)}; }

// Bytes are written and dropped, and each file has seen some of that, whether or not it has seen what came before.
TEST(RecordChoice, WhatWasWrittenLastCountsAlsoIfItWasDropped) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    struct Seen {
      std::size_t file;
      RecordChoice::Key key;
      std::uint64_t sequence;
      RecordChoice::Sum body;
      bool dropped;
    };
    std::vector<Seen> seen;
    std::map<RecordChoice::Key, Seen> last;  // of those that some file has seen
    for (std::uint64_t sequence = 1; sequence <= 12; ++sequence) {
      const RecordChoice::Key key{sum(random() % 2), static_cast<Version>(random() % 2)};
      const RecordChoice::Sum body = sum(100 + static_cast<unsigned>(sequence));
      for (std::size_t file = 0; file < 3; ++file) {
        if (random() % 2 == 0) continue;
        seen.push_back({file, key, sequence, body, random() % 3 == 0});
        last.insert_or_assign(key, seen.back());
      }
    }
    std::shuffle(seen.begin(), seen.end(), random);
    RecordChoice choice(true);
    for (const Seen& one : seen)
      if (!one.dropped) choice.add(one.file, one.key, one.sequence, one.body);
    for (const Seen& one : seen)
      if (one.dropped) choice.add_dropped(one.key, one.sequence, one.body);
    for (const Seen& one : seen) {
      if (one.dropped) continue;
      EXPECT_EQ(choice.counts(one.key, one.body), one.body == last.at(one.key).body) << seed;
    }
  }
}

TEST(RecordChoice, WithoutOneCounterTheFasterFileCounts) {
  for (const bool faster_first : {false, true}) {
    RecordChoice choice(false);
    const RecordChoice::Key key{sum(1), 7};
    if (faster_first) choice.add(0, key, 3, sum(10));
    choice.add(1, key, 900, sum(11));
    if (!faster_first) choice.add(0, key, 3, sum(10));
    choice.add_dropped(key, 1000, sum(12));
    EXPECT_TRUE(choice.counts(key, sum(10)));
    EXPECT_FALSE(choice.counts(key, sum(11)));
  }
}

TEST(RecordChoice, WithoutOneCounterWhatOthersDidToAFileCounts) {
  const RecordChoice::Key key{sum(1), 7};
  RecordChoice anew(false);
  anew.add(0, key, 900, sum(10));
  anew.add(1, key, 3, RecordChoice::kOthers);
  EXPECT_FALSE(anew.counts(key, sum(10)));
  EXPECT_TRUE(anew.counts(key, RecordChoice::kOthers));
  RecordChoice deleted(false);
  deleted.add(0, key, 900, sum(10));
  deleted.add_dropped(key, 3, RecordChoice::kOthers);
  EXPECT_FALSE(deleted.counts(key, sum(10)));
}

}  // namespace
}  // namespace ebb::planner
