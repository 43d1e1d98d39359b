// Waits for a level: whom they wait for, and what they force.
#include "driver.hpp"

namespace ebb::planner {
namespace {

using namespace testing_support;

// Eight checkpoints on the device of a program that has turned round, so that none goes down unless someone asks.
Driver eight_at_rest() {
  Driver d(machine_of(32, 0, 256));
  for (Version v = 0; v < 8; ++v) d.checkpoint(v, 4);
  d.tell(event::StartPrefetch{});
  d.run();
  EXPECT_EQ(d.by_link["device>host"] + d.by_link["host>local"], 0u);
  return d;
}

RequestId wait_for_all(Driver& d, TierIndex tier) { return d.wait_all(tier); }

void cancel(Driver& d, RequestId call) { d.tell(event::Cancel{call}); }

TEST(PlannerWait, ACancelledWaitTakesBackTheFlushesThatHaveNotBegun) {
  Driver d = eight_at_rest();
  const RequestId all = wait_for_all(d, 1);
  ASSERT_FALSE(d.answered(all));
  cancel(d, all);
  EXPECT_EQ(d.reason(all), Reason::cancelled);
  d.run();
  EXPECT_GT(d.by_link["host>local"], 0u) << "the test needs flushes under way";
  EXPECT_LT(d.by_link["host>local"], 8 * 4 * kMiB) << "nothing waits for all of them any more";
}

TEST(PlannerWait, ACancelledWaitLeavesAnothersFlushes) {
  Driver d = eight_at_rest();
  const RequestId mine = wait_for_all(d, 1), others = wait_for_all(d, 1);
  cancel(d, mine);
  d.run();
  EXPECT_EQ(d.reason(mine), Reason::cancelled);
  EXPECT_EQ(d.reason(others), Reason::ok);
  EXPECT_EQ(d.by_link["host>local"], 8 * 4 * kMiB);
}

TEST(PlannerWait, AWaitLeavesOutWhatIsOnlyReserved) {
  Driver d(machine_of(16, 16, 64));
  ASSERT_EQ(d.reason(d.reserve(1, 4)), Reason::ok);
  ASSERT_EQ(d.write(2, 4), Reason::ok);
  const RequestId all = d.wait_all(2);
  d.run();
  EXPECT_EQ(d.reason(all), Reason::ok);
  EXPECT_EQ(d.reason(d.wait(1, 2)), Reason::unknown_version);
}

// As memory that the program lent, and that is gone.
TEST(PlannerWait, AWaitForBytesThatCannotBeReadFails) {
  Driver d(machine_of(16, 16, 0));
  const RequestId write = d.checkpoint(1, 4);
  while (!d.answered(write)) d.finish();
  const RequestId one = d.wait(1, 1), all = d.wait_all(1);
  ASSERT_FALSE(d.under_way.empty()) << "the test needs a flush under way";
  d.finish(0, true, false, true);
  EXPECT_EQ(d.reason(one), Reason::lost);
  EXPECT_EQ(d.reason(all), Reason::lost);
  EXPECT_EQ(d.reason(d.wait(1, 1)), Reason::unknown_version);
}

}  // namespace
}  // namespace ebb::planner
