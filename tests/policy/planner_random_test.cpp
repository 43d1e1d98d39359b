// The planner under random programs whose commands end in any order.
#include <random>

#include "driver.hpp"

namespace ebb::policy {
namespace {

using namespace testing_support;

// Some commands fail: every call is answered, nothing breaks.
TEST(PlannerRandom, RandomProgramsAreAnsweredToTheLastCall) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    Driver d(machine_of(random() % 4 ? 4 + random() % 24 : 0, random() % 4 ? 4 + random() % 40 : 0, 64 + random() % 200,
                        kMiB));
    std::vector<RequestId> calls;
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (int step = 0; step < 250; ++step) {
      const Version v = static_cast<Version>(random() % 30);
      switch (random() % 12) {
        case 0: case 1: case 2: calls.push_back(d.call(EventKind::checkpoint, v, random() % 10, false, random() % 2 ? 0 : 5'000'000)); break;
        case 3: case 4: calls.push_back(d.call(EventKind::restore, v, 0, random() % 4 == 0)); break;
        case 5: d.hint({v, static_cast<Version>(random() % 30), static_cast<Version>(random() % 30)}, random() % 10 == 0); break;
        case 6: d.tell(EventKind::drop, v); break;
        case 7: {
          Event e;
          e.kind = EventKind::unhint;
          if (random() % 4) e.versions = {v};
          d.send(e);
          break;
        }
        case 8: calls.push_back(d.call(EventKind::wait, v, 0, random() % 2, 0, static_cast<TierIndex>(d.planner.machine().tiers.size() - 1))); break;
        default:
          for (int i = 0; i < 6 && !d.under_way.empty(); ++i)
            d.finish(random() % d.under_way.size(), random() % 40 == 0, random() % 200 == 0);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    d.run();
    for (RequestId id : calls) ASSERT_TRUE(d.answered(id)) << "request " << id;
  }
}

}  // namespace
}  // namespace ebb::policy
