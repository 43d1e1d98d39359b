// The planner under random programs whose commands end in any order.
#include <random>
#include <set>

#include "driver.hpp"

namespace ebb::planner {
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
        case 0:
        case 1:
        case 2: calls.push_back(d.checkpoint(v, random() % 10, random() % 2 ? 0 : 5'000'000)); break;
        case 3:
        case 4: calls.push_back(d.restore(v, random() % 4 == 0)); break;
        case 5:
          d.hint({v, static_cast<Version>(random() % 30), static_cast<Version>(random() % 30)}, random() % 10 == 0);
          break;
        case 6: d.tell(event::Drop{v}); break;
        case 7: random() % 4 ? d.tell(event::Unhint{{v}}) : d.tell(event::UnhintAll{}); break;
        case 8:
          calls.push_back(random() % 2 ? d.wait_all(static_cast<TierIndex>(d.planner.machine().tiers.size() - 1))
                                       : d.wait(v, static_cast<TierIndex>(d.planner.machine().tiers.size() - 1)));
          break;
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
}  // namespace ebb::planner

namespace ebb::planner {
namespace {

// A store that keeps: nothing leaves the file but what is dropped or could not be read; what was answered ok is there
// in the end, or was reported. Every second file is too small for all that comes.
TEST(PlannerRandom, AStoreThatKeepsLosesNothingUnsaid) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Machine m = machine_of(random() % 4 ? 4 + random() % 24 : 0, random() % 4 ? 4 + random() % 40 : 0,
                           random() % 2 ? 16 + random() % 40 : 400, kMiB);
    m.ephemeral = false;
    const auto file = static_cast<TierIndex>(m.tiers.size() - 1);
    const bool faulty = random() % 2, small = m.tiers.back().capacity < 400 * kMiB;
    Driver d(m);
    std::map<RequestId, Version> writes;
    std::map<Version, Bytes> there;  // answered ok or adopted, and not dropped
    std::map<std::pair<std::uint32_t, std::uint32_t>, Version> names;
    std::set<Version> lost, late;
    std::vector<RequestId> calls;
    std::set<RequestId> seen;
    std::size_t freed = 0, failures = 0;
    const auto named = [&](CheckpointRef ref) { return std::pair(ref.slot, ref.generation); };
    const auto learn = [&] {
      for (; failures < d.failures.size(); ++failures) {
        const auto it = names.find(named(d.failures[failures].checkpoint));
        if (it == names.end()) continue;
        (d.failures[failures].lost ? lost : late).insert(it->second);
        if (d.failures[failures].lost) there.erase(it->second);
      }
      for (const auto& [id, v] : writes)
        if (d.answered(id) && seen.insert(id).second && d.reason(id) == Reason::ok) {
          names[named(d.answers.at(id).checkpoint)] = v;
          if (d.planner.find(0, v) == d.answers.at(id).checkpoint) there[v] = 1, lost.erase(v), late.erase(v);
        }
      for (; freed < d.freed.size(); ++freed) {
        const Freed& f = d.freed[freed];
        const auto it = names.find(named(f.checkpoint));
        if (f.tier != file || f.failed || it == names.end() || !there.contains(it->second)) continue;
        // Room that a flush had taken, in vain; the bytes are above, or came in the end.
        if (d.planner.find(0, it->second) == f.checkpoint) {
          // A copy that is on its way to a faster tier may be the only one meanwhile.
          const bool moves = std::ranges::count(d.under_way, f.checkpoint, &Command::checkpoint) > 0;
          EXPECT_TRUE(moves || d.planner.fastest_complete(f.checkpoint) >= 0);
          EXPECT_LE(d.planner.fastest_complete(f.checkpoint), file);
        }
      }
    };
    const auto adopt = [&](Version v) {
      if (d.planner.find(0, v)) return;
      d.adopt(v, random() % 8);
      names[named(*d.planner.find(0, v))] = v;
      there[v] = 1;
      lost.erase(v);
      late.erase(v);
    };
    for (std::uint64_t n = random() % 12; n-- > 0;) adopt(static_cast<Version>(random() % 30));
    for (int step = 0; step < 250; ++step) {
      const Version v = static_cast<Version>(random() % 30);
      switch (random() % 14) {
        case 0:
        case 1:
        case 2: {
          const RequestId id = d.checkpoint(v, random() % 10, random() % 2 ? 0 : 5'000'000);
          writes[id] = v;
          calls.push_back(id);
          break;
        }
        case 3:
        case 4: calls.push_back(d.restore(v, random() % 4 == 0)); break;
        case 5: d.hint({v, static_cast<Version>(random() % 30)}, random() % 10 == 0); break;
        case 6:
          there.erase(v);
          d.tell(event::Drop{v});
          break;
        case 7:
          if (random() % 20 == 0) {
            there.clear();
            d.tell(event::DropAll{});
          }
          break;
        case 8: calls.push_back(random() % 2 ? d.wait_all(file) : d.wait(v, file)); break;
        case 9:
          if (random() % 4 == 0)
            adopt(v);
          else if (faulty)
            d.tell(event::NotDurable{v, d.last_tier()});
          break;
        default:
          for (int i = 0; i < 6 && !d.under_way.empty(); ++i) {
            const std::size_t one = random() % d.under_way.size();
            const bool reads_file = d.under_way[one].from.at == Endpoint{Endpoint::tier, file};
            const bool fails = faulty && random() % 20 == 0;
            // Damaged in the file, or written to in memory after it had been committed.
            const bool reads_tier = d.under_way[one].from.at.kind == Endpoint::tier;
            const bool damaged = fails && reads_tier && random() % 2;
            d.finish(one, fails, fails && !damaged && !reads_file && random() % 8 == 0, damaged);
          }
      }
      learn();
      if (testing::Test::HasFailure()) return;
    }
    d.run();
    learn();
    for (RequestId id : calls) ASSERT_TRUE(d.answered(id)) << "request " << id;
    // What was refused may have been condemned by a drop while it was written: only what is known for certain is
    // judged.
    for (const auto& [v, one] : there) {
      const auto found = d.planner.find(0, v);
      ASSERT_TRUE(found) << "version " << v << " is gone";
      const bool room = d.planner.use(file).largest_gap >= d.planner.bytes_of(*found);
      if (!small || room) {
        EXPECT_EQ(d.planner.lowest_complete(*found), file)
            << "version " << v << ", " << d.planner.bytes_of(*found) << " bytes, gap "
            << d.planner.use(file).largest_gap << ", pending " << d.planner.pending() << ", late " << late.contains(v)
            << ", wakeup " << d.wakeup;
      }
    }
    for (const auto& [v, one] : there) EXPECT_EQ(d.read(v, true), Reason::ok) << "version " << v;
    d.tell(event::DropAll{});
    d.run();
    for (TierIndex t = 0; t <= file; ++t) EXPECT_EQ(d.planner.use(t).used, 0u);
    EXPECT_TRUE(d.planner.idle(0)) << "nothing is left of a history that was dropped";
    if (d.planner.idle(0)) d.tell(event::Forget{});
    d.planner.check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ebb::planner
