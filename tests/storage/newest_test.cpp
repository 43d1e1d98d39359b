// Which record of a name counts, against a naive answer.
#include "storage/scan/newest.hpp"

#include <gtest/gtest.h>
#include <random>

namespace ebb::storage {
namespace {

TEST(Newest, OfRandomRecordsThoseCountThatNothingIsNewerThan) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    struct One {
      std::string history;
      RecordHead head;
    };
    std::vector<One> all;
    std::vector<ScannedSegment> segments(3);
    for (int i = 0; i < 30; ++i) {
      One one{random() % 2 ? "adjoint" : "", {}};
      one.head.sequence = random() % 20;
      one.head.version = static_cast<Version>(random() % 3);
      ScannedSegment& segment = segments[random() % segments.size()];
      const bool unnamed = random() % 8 == 0;
      if (random() % 2) {
        segment.records.push_back({one.head, one.history});
      } else {
        one.head = tombstone(one.head, one.history);
        if (unnamed) one.head.history = {};
        segment.waste.push_back({0, 4096, one.head});
        if (unnamed) continue;
      }
      all.push_back(one);
    }
    segments[0].waste.push_back({0, 4096, std::nullopt});
    Newest newest;
    for (const ScannedSegment& segment : segments) newest.add(segment);
    for (const One& one : all) {
      if (one.head.kind != RecordHead::Kind::live) continue;
      const bool newer = std::any_of(all.begin(), all.end(), [&](const One& other) {
        return other.history == one.history && other.head.version == one.head.version &&
               other.head.sequence > one.head.sequence;
      });
      ASSERT_EQ(newest.is_newest(one.head, one.history), !newer) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace ebb::storage
