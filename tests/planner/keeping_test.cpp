// Retention on a small file: what becomes durable, what is dropped for it, who waits for that, and who is refused.
#include <random>
#include <set>

#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

constexpr TierIndex kDisk = 1;  // behind the host's memory

Machine window(Bytes host, Bytes local, std::uint64_t keep_last, std::uint64_t keep_every = 0) {
  Machine m = machine_of(0, host, local);
  m.ephemeral = false;
  m.retention = {keep_last, keep_every};
  return m;
}

// With a storage that makes durable what it is asked to commit, when the test says so.
class Keeper : public Driver {
 public:
  using Driver::Driver;

  bool there(Version v) const { return planner.find(0, v).has_value(); }
  bool in_file(Version v) const {
    const auto found = planner.find(0, v);
    return found && planner.lowest_complete(*found) == kDisk;
  }
  void durable(Version v, bool failed = false) {
    failed ? tell(event::NotDurable{v, kDisk}) : tell(event::Durable{v, kDisk});
  }
  std::vector<Version> retired() const {
    std::vector<Version> versions;
    for (const Retired& one : out.retired) versions.push_back(one.version);
    return versions;
  }
  void settle() {
    while (!under_way.empty()) finish();
  }
  void keep(Version v, Bytes mib = 4) {
    ASSERT_EQ(write(v, mib), Reason::ok);
    settle();
    durable(v);
  }
};

TEST(PlannerKeeping, OneThatIsDurableIsWhatOlderOnesAreDroppedFor) {
  Keeper d(window(64, 64, 1));
  d.keep(1);
  EXPECT_TRUE(d.retired().empty());
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  d.settle();
  EXPECT_TRUE(d.in_file(2) && d.in_file(1)) << "it may never become durable";
  d.durable(2, true);
  EXPECT_TRUE(d.there(1) && d.there(2)) << "and has not";
  d.keep(3);
  EXPECT_EQ(d.retired(), std::vector<Version>{1});
  EXPECT_TRUE(d.there(2)) << "what never was durable is not dropped";
  EXPECT_FALSE(d.there(1));
}

TEST(PlannerKeeping, OnlyWhatIsAgreedOnMakesUpForOlderOnes) {
  Machine machine = window(64, 64, 1);
  machine.retention.agreed = true;
  Keeper d(machine);
  for (Version v : {1, 2, 3, 4}) d.keep(v);
  EXPECT_TRUE(d.retired().empty());
  d.tell(event::Agreed{3});
  EXPECT_EQ(d.retired(), (std::vector<Version>{2, 1}));
  EXPECT_TRUE(d.there(3) && d.there(4));
  d.tell(event::Agreed{-1});  // as after a restart from nothing
  d.keep(5);
  EXPECT_TRUE(d.there(3) && d.there(4) && d.there(5));
  d.tell(event::Agreed{7});
  EXPECT_TRUE(d.there(5) && !d.there(3) && !d.there(4));
}

// What may be agreed on later gives no room now, and the call is refused at once: the program can agree, and ask again.
TEST(PlannerKeeping, ACallDoesNotWaitForAnAgreement) {
  Machine machine = window(64, 16, 1);
  machine.retention.agreed = true;
  Keeper d(machine);
  for (Version v : {1, 2, 3, 4}) d.keep(v);
  EXPECT_EQ(d.write(5, 4), Reason::no_space);
  d.tell(event::Agreed{4});
  EXPECT_EQ(d.write(5, 4), Reason::ok);
}

TEST(PlannerKeeping, WhatComesLateIsDroppedItself) {
  Keeper d(window(64, 64, 1));
  for (Version v : {1, 2, 3}) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.settle();
  d.durable(3);
  EXPECT_TRUE(d.retired().empty());
  d.durable(1);
  EXPECT_EQ(d.retired(), std::vector<Version>{1});
  d.durable(2);
  EXPECT_EQ(d.retired(), std::vector<Version>{2});
}

TEST(PlannerKeeping, AProgramThatGoesBackKeepsWhatItWroteLast) {
  Keeper d(window(64, 64, 1));
  d.keep(9);
  d.keep(4);
  EXPECT_TRUE(d.there(4) && d.there(9));
  d.keep(5);
  EXPECT_EQ(d.retired(), std::vector<Version>{4});
  d.keep(10);
  EXPECT_FALSE(d.there(5) || d.there(9));
}

TEST(PlannerKeeping, WhatAnEarlierProcessLeftCountsOnceItWasRead) {
  for (const bool read : {false, true}) {
    Keeper d(window(64, 64, 2));
    for (Version v : {1, 2, 3, 8, 9}) d.adopt(v, 4);
    if (read) d.durable(9);
    EXPECT_TRUE(d.retired().empty()) << "nothing goes before something new is durable";
    d.keep(4);
    EXPECT_EQ(d.retired(), (read ? std::vector<Version>{3, 2, 1} : std::vector<Version>{2, 1}));
    EXPECT_TRUE(d.there(4) && d.there(8) && d.there(9));
  }
}

TEST(PlannerKeeping, MultiplesStayAndCountNoMore) {
  Keeper d(window(64, 64, 2, 3));
  for (Version v = 1; v <= 8; ++v) d.keep(v);
  for (Version v = 1; v <= 8; ++v) EXPECT_EQ(d.there(v), v == 3 || v >= 6) << v;
}

// The file holds what is kept and one more; everything is full.
TEST(PlannerKeeping, RoomThatRetentionWillFreeIsWaitedForAndHastened) {
  Keeper d(window(8, 8, 1));
  for (Version v : {0, 1}) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.settle();
  EXPECT_EQ(d.commits, 0);
  for (Version v : {2, 3}) ASSERT_EQ(d.write(v, 4), Reason::ok);  // they displace 0 and 1 in memory
  d.settle();
  EXPECT_EQ(d.commits, 1);
  const RequestId call = d.checkpoint(4, 4);
  EXPECT_FALSE(d.answered(call)) << "no transfer is under way, and yet room will come";
  d.durable(0);
  EXPECT_FALSE(d.answered(call)) << d.answers[call].detail;
  d.durable(1);
  EXPECT_EQ(d.retired(), std::vector<Version>{0});
  d.settle();
  EXPECT_TRUE(d.in_file(2));
  EXPECT_EQ(d.reason(call), Reason::ok);
  d.durable(2);
  d.settle();
  d.durable(3);
  d.settle();
  d.durable(4);
  for (Version v = 0; v < 4; ++v) EXPECT_FALSE(d.there(v));
  EXPECT_TRUE(d.in_file(4));
}

TEST(PlannerKeeping, ACommitIsAskedForOnceForEachThatItWouldHelp) {
  Keeper d(window(16, 8, 1));
  for (Version v : {0, 1}) ASSERT_EQ(d.write(v, 4), Reason::ok);
  d.settle();
  EXPECT_EQ(d.commits, 0) << "nothing is held up";
  for (Version v : {2, 3, 4}) {
    ASSERT_EQ(d.write(v, 4), Reason::ok);
    d.settle();
    EXPECT_EQ(d.commits, 1) << "of both";
  }
  d.durable(0);
  d.durable(1);
  EXPECT_EQ(d.commits, 1);
  d.settle();  // 2 comes to the file, where 1 is durable
  EXPECT_EQ(d.commits, 2);
}

TEST(PlannerKeeping, ADiskThatHoldsNoMoreThanWhatIsKeptIsRefusedByTheFirstThatShowsIt) {
  Keeper d(window(64, 12, 3));
  for (Version v : {1, 2, 3}) d.keep(v);
  const RequestId call = d.checkpoint(4, 4);
  ASSERT_EQ(d.reason(call), Reason::no_space);
  const std::string& why = d.answers[call].detail;
  const std::vector<std::string> parts{"version 4", std::to_string(16 * kMiB), std::to_string(12 * kMiB),
                                       "keep_last=3"};
  for (const std::string& text : parts) EXPECT_NE(why.find(text), why.npos) << text << " is not in: " << why;
  EXPECT_FALSE(d.there(4));
  for (Version v : {1, 2, 3}) EXPECT_TRUE(d.in_file(v));
  d.tell(event::Drop{1});
  EXPECT_EQ(d.write(4, 4), Reason::ok) << "the program has made room";
}

TEST(PlannerKeeping, WhatIsPendingCountsForARefusal) {
  Keeper d(window(64, 12, 3));
  for (Version v : {1, 2, 3}) ASSERT_EQ(d.write(v, 4), Reason::ok);
  const RequestId call = d.checkpoint(4, 4);
  for (int i = 0; !d.answered(call) && i < 100; ++i) {
    if (!d.under_way.empty())
      d.finish();
    else
      for (Version v : {1, 2, 3}) d.durable(v);
  }
  EXPECT_EQ(d.reason(call), Reason::no_space) << "and no later one";
}

// A process that was killed left more than retention keeps, and the file is full of it.
TEST(PlannerKeeping, WhatAKilledProcessLeftMakesRoomOnceWhatIsNewerWasRead) {
  Keeper d(window(8, 16, 2));
  for (Version v : {1, 2, 3, 4}) d.adopt(v, 4);
  d.keep(5);
  EXPECT_EQ(d.by_link["local>host"], 8 * kMiB) << "of the newest two";
  for (Version v = 1; v <= 5; ++v) EXPECT_EQ(d.there(v), v >= 4) << v;
  EXPECT_TRUE(d.in_file(5));
}

TEST(PlannerKeeping, WhatIsDamagedMakesUpForNothingThere) {
  Keeper d(window(8, 14, 1));
  for (Version v : {1, 2, 3}) d.adopt(v, 4);
  d.adopt(4, 2);
  ASSERT_EQ(d.write(5, 4), Reason::ok);
  const auto read = [&] { return d.under_way.front().from.at == Endpoint{Endpoint::tier, kDisk}; };
  while (!read()) d.finish();
  d.finish(0, true, false, true);
  ASSERT_TRUE(!d.under_way.empty() && read()) << "the next one";
  EXPECT_FALSE(d.there(4)) << "it is damaged";
  EXPECT_TRUE(d.there(1) && d.there(2));
  d.settle();
  EXPECT_TRUE(d.there(3) && d.in_file(5));
  EXPECT_FALSE(d.there(1) || d.there(2));
}

TEST(PlannerKeeping, NothingIsReadWhereThereIsRoom) {
  Keeper d(window(8, 20, 2));
  for (Version v : {1, 2, 3, 4}) d.adopt(v, 4);
  d.keep(5);
  EXPECT_EQ(d.by_link["local>host"], 0u);
  EXPECT_EQ(d.retired(), (std::vector<Version>{3, 2, 1}));
}

// One that is large comes behind what was written before it, and before what was written after it.
TEST(PlannerKeeping, CheckpointsComeToTheFileInTheOrderOfTheirWriting) {
  Machine m = window(64, 16, 1);
  Keeper d(m);
  d.hint({5, 4, 3, 2, 1});  // which other stores flush by
  std::vector<Version> order;
  for (const auto& [v, mib] : std::vector<std::pair<Version, Bytes>>{{1, 4}, {2, 12}, {3, 4}, {4, 12}, {5, 4}})
    ASSERT_EQ(d.write(v, mib), Reason::ok);
  std::set<Version> durable;
  for (int i = 0; i < 1000; ++i) {
    for (Version v = 1; v <= 5; ++v)
      if (d.in_file(v) && durable.insert(v).second) {
        order.push_back(v);
        d.durable(v);
      }
    if (d.under_way.empty()) break;
    d.finish();
  }
  EXPECT_EQ(order, (std::vector<Version>{1, 2, 3, 4, 5}));
}

TEST(PlannerKeeping, AWaitForWhatHasNoRoomNamesIt) {
  Keeper d(window(64, 8, 1));
  for (Version v : {1, 2}) d.keep(v);
  d.durable(2);
  ASSERT_EQ(d.write(3, 4), Reason::ok);
  d.settle();
  const RequestId wait = d.wait_all(kDisk);
  d.run();
  EXPECT_EQ(d.reason(wait), Reason::ok);
  Keeper none(window(64, 8, 0));
  for (Version v : {1, 2, 3}) ASSERT_EQ(none.write(v, 4), Reason::ok);
  none.settle();
  const RequestId stuck = none.wait_all(kDisk);
  ASSERT_EQ(none.reason(stuck), Reason::no_space);
  EXPECT_EQ(none.answers[stuck].checkpoint, *none.planner.find(0, 3));
  EXPECT_NE(none.answers[stuck].detail.find("its 4194304 bytes have no room on local"), std::string::npos)
      << none.answers[stuck].detail;
}

}  // namespace
}  // namespace ebb::planner
