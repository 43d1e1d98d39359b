// What this process's cache does not use is given away, and taken back.
#include "planner/spare_room.hpp"

#include <algorithm>

#include "driver.hpp"
#include "planner/lease_ledger.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr Bytes kPiece = 4;
constexpr std::uint32_t kPieces = 3;

// A device cache of four times 4 MiB, of which others may have three, and the tiers below it.
struct Spares {
  explicit Spares(Bytes host = 64, Bytes local = 0) : d(machine_of(kPiece, host, local)) {
    for (SegmentId s = 1; s <= kPieces; ++s) back(s);
    want(true);
  }
  void want(bool wanted) { d.tell(event::Spare{0, 1, kPieces, wanted}); }
  void back(SegmentId piece) { d.tell(event::Lend{0, piece, kPiece * kMiB}); }
  void back() {
    for (const Returned& r : std::exchange(d.returned, {})) back(r.segment);
  }
  void rest() {
    d.run();
    d.now += kSpareAfter;
    d.tell(event::Tick{});
    d.run();
  }
  Bytes own() const { return d.planner.use(TierIndex{0}).capacity; }
  Driver d;
};

TEST(SpareRoom, NothingIsGivenAwayThatNobodyWants) {
  Spares s;
  EXPECT_EQ(s.d.spare, kPieces) << "it was never used";
  EXPECT_EQ(s.d.returned.size(), kPieces);
  EXPECT_EQ(s.own(), kPiece * kMiB);
  s.want(false);
  EXPECT_EQ(s.d.spare, 0u);
  s.back();
  s.rest();
  EXPECT_EQ(s.own(), (1 + kPieces) * kPiece * kMiB);
  EXPECT_TRUE(s.d.returned.empty());
}

TEST(SpareRoom, TheFirstWriteAsksForAllAndARestGivesWhatItLeaves) {
  Spares s;
  ASSERT_EQ(s.d.write(0, 1), Reason::ok);
  EXPECT_EQ(s.d.spare, 0u) << "nothing is known of this program yet";
  s.back();
  for (Version v = 1; v < 12; ++v) {
    ASSERT_EQ(s.d.write(v, 1), Reason::ok);
    EXPECT_EQ(s.d.spare, 0u) << "the burst goes on";
  }
  s.rest();
  EXPECT_EQ(s.d.spare, 3u) << "all is on the host too, and two checkpoints are 2 MiB";
  EXPECT_EQ(s.d.returned.size(), 3u);
  for (Version v = 0; v < 12; ++v) EXPECT_EQ(s.d.read(v, true), Reason::ok) << v;
}

TEST(SpareRoom, AWriteAsksForAsMuchAsTheLastBurstTook) {
  Spares s;
  for (const Version burst : {0, 10, 20}) {
    for (Version v = burst; v < burst + 3; ++v) {
      ASSERT_EQ(s.d.write(v, 2), Reason::ok);
      if (v == burst && v > 0) {
        EXPECT_EQ(s.d.spare, 2u) << "of 16 MiB, 6 are kept for this burst";
      }
      s.back();
    }
    s.rest();
    EXPECT_EQ(s.d.spare, 3u);
  }
}

TEST(SpareRoom, WhatHintsNameIsKept) {
  Spares s;
  for (Version v = 0; v < 6; ++v) {
    ASSERT_EQ(s.d.write(v, 2), Reason::ok);
    s.back();
  }
  s.rest();
  ASSERT_EQ(s.d.spare, 3u);
  s.d.hint({5, 4, 3, 2});
  s.d.now += kSpareLook;
  s.d.tell(event::Tick{});
  EXPECT_EQ(s.d.spare, 1u) << "of 16 MiB, 8 are hinted and 4 are for writes";
  s.back();
  s.rest();
  EXPECT_EQ(s.d.spare, 1u);
  for (Version v : {5, 4, 3, 2}) EXPECT_EQ(s.d.planner.fastest_complete(*s.d.planner.find(0, v)), 0) << v;
}

TEST(SpareRoom, WhoReturnsLateHasNothingForManyBursts) {
  Spares s;
  ASSERT_EQ(s.d.write(0, 1), Reason::ok);
  s.d.now += kReturnWithin;
  s.back();
  s.rest();
  for (Version v = 1; v < kPauseAfterLate; ++v) {
    EXPECT_EQ(s.d.spare, 0u) << v;
    ASSERT_EQ(s.d.write(v, 1), Reason::ok);
    s.rest();
  }
  EXPECT_EQ(s.d.spare, 0u);
  ASSERT_EQ(s.d.write(kPauseAfterLate, 1), Reason::ok);
  s.rest();
  EXPECT_EQ(s.d.spare, kPieces);
}

TEST(SpareRoom, WhatIsNowhereElseStays) {
  Spares s(0, 0);
  s.d.tell(event::StartPrefetch{});
  for (Version v = 0; v < 3; ++v) {
    ASSERT_EQ(s.d.write(v, 2), Reason::ok);
    s.back();
  }
  s.rest();
  EXPECT_EQ(s.d.spare, 1u) << "6 MiB are there alone, and 4 are for writes";
  for (Version v = 0; v < 3; ++v) EXPECT_EQ(s.d.read(v), Reason::ok);
}

TEST(SpareRoom, AWriteThatFindsNoRoomAsksForAll) {
  Spares s(0, 0);
  ASSERT_EQ(s.d.write(0, 1), Reason::ok);
  s.back();
  s.rest();
  ASSERT_EQ(s.d.spare, kPieces) << "1 MiB is there alone, and 2 are for writes";
  ASSERT_EQ(s.d.write(1, 2), Reason::ok);
  EXPECT_EQ(s.d.spare, 2u) << "3 MiB are there alone, and 4 are for writes";
  const RequestId call = s.d.checkpoint(2, 2);
  EXPECT_EQ(s.d.spare, 0u);
  EXPECT_FALSE(s.d.answered(call));
  s.back();
  s.d.run();
  EXPECT_EQ(s.d.reason(call), Reason::ok);
}

// A call that finds no room waits for what others have, and for a borrower that returns nothing no longer than it may.
TEST(SpareRoom, AWriteWaitsForWhatIsComingBack) {
  for (const bool returns : {true, false}) {
    Spares s(0, 0);
    ASSERT_EQ(s.d.write(0, kPiece), Reason::ok);
    ASSERT_EQ(s.own(), kPiece * kMiB) << "nothing has come back yet";
    const RequestId call = s.d.checkpoint(1, kPiece);
    s.d.now += kRecallWithin / 2;
    s.d.tell(event::Tick{});
    EXPECT_FALSE(s.d.answered(call));
    if (returns) {
      s.back();
      s.d.run();
      EXPECT_EQ(s.d.reason(call), Reason::ok);
      continue;
    }
    s.d.run();
    EXPECT_EQ(s.d.reason(call), Reason::no_space);
    EXPECT_LE(s.d.now, 2 * kRecallWithin);
    s.back();
    EXPECT_EQ(s.d.write(2, kPiece), Reason::ok) << "what comes back later is used all the same";
  }
}

}  // namespace
}  // namespace ebb::planner
