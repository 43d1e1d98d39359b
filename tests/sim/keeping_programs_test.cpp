// Random programs over files that hold the retained versions and one checkpoint more, to the byte: no call is refused,
// however fast checkpoints come, and at the end exactly the documented versions exist. With a byte less, the first
// checkpoint that does not fit is refused by name, with the number of bytes needed.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <random>

#include "sim/random.hpp"
#include "sim/simulation.hpp"

namespace ebb::sim {
namespace {

using planner::Medium;

constexpr Bytes kGranule = 4096;
constexpr Time kQuiet = 10'000'000'000;  // long enough for everything to become durable

// The versions of a history once all are durable: the rule, implemented naively.
class Model {
 public:
  explicit Model(planner::Retention how) : how_(how) {}
  bool contains(Version v) const { return held_.contains(v); }
  Version newest() const { return held_.empty() ? -1 : held_.rbegin()->first; }
  Version any(Random& random) const {
    return std::next(held_.begin(), static_cast<std::ptrdiff_t>(random.below(held_.size())))->first;
  }
  bool empty() const { return held_.empty(); }
  Bytes bytes() const {
    Bytes sum = 0;
    for (const auto& [v, one] : held_) sum += one.bytes;
    return sum;
  }
  void write(Version v, Bytes bytes) {
    held_[v] = {bytes, ++writes_};
    std::vector<Version> gone;
    for (const auto& [old, one] : held_) {
      const bool multiple = how_.keep_every && old % static_cast<Version>(how_.keep_every) == 0;
      std::uint64_t newer = 0;
      bool since = false;
      for (auto at = held_.upper_bound(old); at != held_.end(); ++at) ++newer, since |= at->second.order > one.order;
      if (newer >= how_.keep_last && since && !multiple) gone.push_back(old);
    }
    for (const Version old : gone) held_.erase(old);
  }
  void drop(Version v) { held_.erase(v); }
  std::vector<Version> versions() const {
    std::vector<Version> out;
    for (const auto& [v, one] : held_) out.push_back(v);
    return out;
  }

 private:
  struct One {
    Bytes bytes = 0;
    std::uint64_t order = 0;
  };
  planner::Retention how_;
  std::map<Version, One> held_;
  std::uint64_t writes_ = 0;
};

struct WindowCase {
  MachineModel machine;
  std::vector<Program> programs;
  std::vector<std::vector<Version>> kept;  // by program, at the end
  Bytes most = 0;                          // bytes that the file must hold
  std::size_t at = 0;                      // one program: the first checkpoint that needs so much
  Options options;
};

Bytes padded(Bytes bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

WindowCase make_window(std::uint64_t seed) {
  Random random(mixed(seed));
  WindowCase out;
  planner::Machine m;
  m.ephemeral = false;
  m.releases_later = seed % 2 == 0;
  m.retention = {random.between(1, 4), random.chance(0.5) ? 0 : random.between(2, 9)};
  m.eviction = static_cast<planner::EvictionPolicy>(random.below(4));
  const Bytes largest = kGranule * random.between(1, 16);
  const bool equal = random.chance(0.4);
  const std::size_t clients = random.chance(0.7) ? 1 : 2;
  Bytes of_others = 0;
  for (std::size_t h = 0; h < clients; ++h) {
    Program p{.history = static_cast<HistoryId>(h), .start = 0, .ops = {}};
    Model model(m.retention);
    // A killed process left more versions than retention allows, any number of them.
    const Version left = random.chance(0.3) ? static_cast<Version>(random.between(1, 12)) : 0;
    Version next = left > 0 ? left : static_cast<Version>(random.below(3));
    Bytes most_kept = 0;
    std::size_t checkpoints = 0;
    const auto quiet = [&] {
      p.ops.push_back(op::join());
      p.ops.push_back(op::wait_all(planner::TierIndex{0}));  // the tier is set below
      p.ops.push_back(op::sleep(kQuiet));
    };
    const auto write = [&](Version v) {
      const Bytes bytes = equal ? largest : random.chance(0.03) ? 0 : random.between(1, largest);
      Op o = op::checkpoint(v, bytes);
      o.async = random.chance(0.2);
      p.ops.push_back(o);
      if (clients == 1 && model.bytes() + padded(bytes) > out.most) {
        out.most = model.bytes() + padded(bytes);
        out.at = checkpoints;
      }
      ++checkpoints;
      model.write(v, padded(bytes));
      most_kept = std::max(most_kept, model.bytes());
      if (o.async) p.ops.push_back(op::join());  // in sequence: the order in which retention counts them
    };
    for (Version v = 0; v < left; ++v) {
      const Bytes bytes = equal ? largest : random.chance(0.05) ? 0 : random.between(1, largest);
      p.ops.push_back(op::recovered(v, bytes));
      model.write(v, padded(bytes));
    }
    if (left > 0) write(next++);
    for (std::uint64_t n = random.between(10, 120); n-- > 0;) {
      std::uint64_t x = random.below(100);
      if (left > 0 && x >= 90 && x < 95) x = 0;  // versions that were not read count only after newer ones
      if (x < 70) {
        write(next);
        next += static_cast<Version>(random.between(1, 2));
      } else if (x < 76) {
        p.ops.push_back(op::sleep(static_cast<Time>(random.below(random.chance(0.5) ? 100'000 : 20'000'000))));
      } else if (x < 82 && !model.empty()) {
        p.ops.push_back(op::restore(model.any(random)));
      } else if (x < 86 && !model.empty()) {
        p.ops.push_back(op::wait(model.newest(), 0));
      } else if (x < 90) {
        std::vector<Version> order;
        for (std::uint64_t k = random.between(1, 8); k-- > 0;)
          order.push_back(next + static_cast<Version>(random.below(8)));
        p.ops.push_back(op::hint(order, random.chance(0.3)));
      } else if (x < 93 && !model.empty()) {  // a drop, when the existing versions are known; perhaps rewritten
        quiet();
        const Version v = model.any(random);
        p.ops.push_back(op::drop(v));
        model.drop(v);
        if (random.chance(0.5)) write(v);
      } else if (x < 95 && next > 4) {  // the program goes back
        quiet();
        const Version v = static_cast<Version>(random.below(static_cast<std::uint64_t>(next)));
        if (!model.contains(v)) write(v);
      } else if (x < 98) {
        p.ops.push_back(op::wait_all(planner::TierIndex{0}));
      } else {
        quiet();
      }
    }
    quiet();
    out.kept.push_back(model.versions());
    of_others += most_kept;
    out.programs.push_back(std::move(p));
  }
  if (clients > 1) out.most = of_others + largest;
  if (random.chance(0.4)) m.tiers.push_back({"device", Medium::device, largest * random.between(1, 8), kGranule});
  if (random.chance(0.8)) m.tiers.push_back({"host", Medium::host, largest * random.between(1, 12), kGranule});
  m.tiers.push_back({"local", Medium::file, out.most, kGranule});
  const auto file = static_cast<TierIndex>(m.tiers.size() - 1);
  for (Program& p : out.programs)
    for (Op& o : p.ops)
      if (o.kind == Op::Kind::wait) o.tier = random.chance(0.8) ? file : TierIndex{0};
  planner::connect(m);
  const Bytes chunk = kGranule * random.between(1, 8);
  for (planner::LinkSpec& link : m.links) {
    link.bytes_per_s = static_cast<double>(random.between(1, 50) * 10'000'000);
    link.chunk = chunk;
    link.depth = static_cast<int>(random.between(1, 3));
  }
  m.ring_slot = chunk;
  m.nodes[planner::kHost].staging = static_cast<int>(random.between(1, 6));
  out.machine = model_of(m);
  out.options.faults.seed = random.next();
  out.options.syncs.interval = random.chance(0.3) ? kQuiet / 10 : static_cast<Time>(random.below(100'000'000));
  out.options.syncs.latency = static_cast<Time>(random.below(3'000'000));
  out.options.verify = true;
  out.options.check_every = 1;
  return out;
}

std::vector<Version> in_file(const planner::Planner& planner, HistoryId history) {
  std::vector<Version> out;
  for (Version v = 0; v < 1000; ++v) {
    const auto found = planner.find(history, v);
    if (!found) continue;
    EXPECT_EQ(planner.lowest_complete(*found), static_cast<TierIndex>(planner.machine().tiers.size() - 1)) << v;
    out.push_back(v);
  }
  return out;
}

void check_window(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  WindowCase c = make_window(seed);
  std::vector<Call> refused;
  Simulation simulation(c.machine, {c.programs}, c.options);
  simulation.on_answer = [&](const Call& call) {
    if (call.reason == planner::Reason::ok) return;
    // A wait or restore may name a version that retention has dropped by then.
    const bool gone = call.reason == planner::Reason::unknown_version || call.reason == planner::Reason::dropped;
    if (!(gone && (call.kind == Op::Kind::wait || call.kind == Op::Kind::restore))) refused.push_back(call);
  };
  Bytes unreleased = 0, left = 0, most = 0;  // on the disk beside what is used; what a killed process left, in all
  const auto file = static_cast<TierIndex>(c.machine.planner.tiers.size() - 1);
  simulation.observer = [&](int, const planner::Event& event, const planner::Output& out) {
    if (!c.machine.planner.releases_later) return;
    if (const auto* const now = std::get_if<planner::event::Unreleased>(&event.what)) unreleased = now->bytes;
    if (const auto* const old = std::get_if<planner::event::Recovered>(&event.what)) left += padded(old->bytes);
    for (const planner::Freed& freed : out.freed) unreleased += freed.tier == file ? freed.length : 0;
    most = std::max(most, simulation.planner().use(file).used + unreleased);
  };
  ASSERT_NO_THROW(while (simulation.step()){});
  // Of two programs, one may have written before what a killed process left to the other is known.
  EXPECT_LE(most, std::max(c.most, left) + (c.programs.size() > 1 ? left : 0)) << "bytes on the disk";
  for (const Call& call : refused)
    ADD_FAILURE() << "version " << call.version << " of " << call.bytes << " bytes, kind "
                  << static_cast<int>(call.kind) << ": " << planner::name_of(call.reason) << ", " << call.detail;
  for (std::size_t h = 0; h < c.programs.size(); ++h)
    EXPECT_EQ(in_file(simulation.planner(), static_cast<HistoryId>(h)), c.kept[h]) << "history " << h;
}

// One granule less than needed: the checkpoint that needs it gets the error, and no earlier one.
void check_short_window(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  WindowCase c = make_window(seed);
  if (c.programs.size() > 1 || c.most <= kGranule) return;
  c.machine.planner.tiers.back().capacity = c.most - kGranule;
  const std::size_t wanted = c.at;
  std::size_t checkpoints = 0;
  std::optional<Call> first;
  Simulation simulation(c.machine, {c.programs}, c.options);
  simulation.on_answer = [&](const Call& call) {
    if (call.kind != Op::Kind::checkpoint || first) return;
    if (call.reason == planner::Reason::ok) {
      ++checkpoints;
      return;
    }
    first = call;
  };
  ASSERT_NO_THROW(while (!first && simulation.step()){});
  ASSERT_TRUE(first);
  EXPECT_EQ(checkpoints, wanted);
  if (first->reason == planner::Reason::too_large) return;  // no other tier can hold it
  EXPECT_EQ(first->reason, planner::Reason::no_space);
  EXPECT_NE(first->detail.find(std::to_string(c.most) + " bytes are needed"), std::string::npos) << first->detail;
}

class Windows : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Windows, ThatTheFileHoldsAlwaysMakeProgress) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 150 && !HasFailure(); ++seed) check_window(seed);
}

TEST_P(Windows, ThatItDoesNotHoldAreRefusedByTheFirstThatShowsIt) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 100 && !HasFailure(); ++seed) check_short_window(seed);
}
INSTANTIATE_TEST_SUITE_P(OfManyKinds, Windows, ::testing::Values(1, 1001, 2001, 3001));

TEST(WindowsFresh, ThatTheFileHoldsAlwaysMakeProgress) {
  const char* given = std::getenv("EBB_SEED");
  const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : std::random_device{}() * 1000ull;
  std::cout << "EBB_SEED=" << first << "\n";
  for (std::uint64_t seed = first; seed < first + 50 && !HasFailure(); ++seed)
    check_window(seed), check_short_window(seed);
}

}  // namespace
}  // namespace ebb::sim
