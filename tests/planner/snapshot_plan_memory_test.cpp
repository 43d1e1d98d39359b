// A program of its own: from a fault to its answer the plan allocates nothing.
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "planner/snapshot_plan.hpp"
#include "tests/os/refused_memory.hpp"

namespace ebb::planner {
namespace {

TEST(SnapshotPlanMemory, AFaultACopyADrainAndAFailureAllocateNothing) {
  for (const bool hints : {true, false}) {
    SnapshotPlan plan({.slots = 2, .slot_zones = 4, .reserve = 1, .copies = 3, .hints = hints, .longest_wait = 5'000});
    std::mt19937_64 random(7);
    std::vector<SnapshotCommand> to_do;
    to_do.reserve(4096);
    Time now = 0;
    std::uint64_t faults = 0, failures = 0;
    const auto on = [&](SnapshotEvent event, bool refuse) {
      for (bool more = true; more; event = {}) {
        event.now = now;
        if (refuse) test::refuse_nth = 1;
        const SnapshotCommands c = plan.on(event);
        test::refuse_nth = 0;
        for (const SnapshotCommand& one : c.list) {
          if (one.kind == SnapshotCommand::copy || one.kind == SnapshotCommand::duplicate ||
              one.kind == SnapshotCommand::drain)
            to_do.push_back(one);
          failures += one.kind == SnapshotCommand::failed;
        }
        more = c.more;
      }
    };
    on({.kind = SnapshotEvent::protect, .count = 200}, false);
    for (int step = 0; step < 20'000; ++step) {
      now += 20;
      if (random() % 50 == 0) {
        on({.kind = random() % 5 ? SnapshotEvent::cut : SnapshotEvent::full_cut}, false);
      } else if (random() % 2 || to_do.empty()) {
        ++faults;
        on({.kind = SnapshotEvent::fault, .zone = static_cast<ZoneIndex>(random() % 200)}, true);
      } else {
        const std::size_t which = random() % to_do.size();
        const SnapshotCommand c = to_do[which];
        to_do.erase(to_do.begin() + static_cast<std::ptrdiff_t>(which));
        if (c.kind == SnapshotCommand::drain) {
          on({.kind = SnapshotEvent::drained, .slot = c.slot}, true);
        } else {
          on({.kind = SnapshotEvent::copied, .zone = c.zone, .slot = c.slot}, true);
        }
      }
      on({}, true);
    }
    EXPECT_GT(faults, 5'000u);
    EXPECT_GT(failures, 0u);
  }
}

}  // namespace
}  // namespace ebb::planner
