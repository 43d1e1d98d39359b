// What the planner decides, as it was recorded: the events of 200 random programs (ephemeral and persistent stores,
// calls in stream order, faults, retention, memory that ends early) and, byte for byte, each command it gave for them.
// A change of policy changes this file on purpose, and its commit says which commands differ and why:
//   EBB_RECORD=golden.txt build/dev/tests/sim/golden_commands_test && tar -cJf tests/sim/golden.tar.xz golden.txt
// Of three programs with thousands of replicas there is a digest for each 1,000 events, in golden_large.txt:
//   EBB_RECORD_LARGE=tests/sim/golden_large.txt build/dev/tests/sim/golden_commands_test
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "sim/random.hpp"
#include "tests/sim/random_run.hpp"
#include "trace/event_text.hpp"

namespace ebb::sim::testing {
namespace {

constexpr std::size_t kPrograms = 200;
constexpr std::uint64_t kMostEvents = 400;  // of a program, for its file's sake
constexpr std::string_view kBegin = "ebbtide-events ";

struct Recorded {
  std::string text;
  std::uint64_t events = 0;
};

Recorded record(const RandomCase& c) {
  Recorded out;
  trace::append_text(out.text, c.machine.planner);
  Simulation simulation(c.machine, {c.programs}, c.options);
  simulation.observer = [&](int, const planner::Event& event, const planner::Output& output) {
    trace::append_text(out.text, event);
    trace::append_text(out.text, output);
    ++out.events;
  };
  while (out.events <= kMostEvents && simulation.step()) {
  }
  return out;
}

// As many of each kind as of any other, so far as there are any among the first seeds.
std::string kind_of(const RandomCase& c) {
  const auto& planner = c.machine.planner;
  return std::string(planner.ephemeral             ? "ephemeral"
                     : planner.retention.keep_last ? "retention"
                                                   : "persistent") +
         (c.ordered ? ", ordered" : "") + (c.faulty ? ", faults" : "") + (c.shrinks ? ", shrinks" : "");
}

void record_all(const char* path) {
  std::ofstream file(path);
  std::map<std::string, std::size_t> many;
  std::size_t recorded = 0;
  for (std::uint64_t seed = 1; recorded < kPrograms; ++seed) {
    const RandomCase c = random_case(seed);
    if (many[kind_of(c)] > seed / 40) continue;
    const Recorded one = record(c);
    if (one.events < 20 || one.events > kMostEvents || one.text.find("\nc ") == one.text.npos) continue;
    ++many[kind_of(c)];
    ++recorded;
    file << one.text;
  }
  for (const auto& [kind, count] : many) std::cout << count << " " << kind << "\n";
}

TEST(Golden, EveryCommandIsAsItWasRecorded) {
  if (const char* path = std::getenv("EBB_RECORD")) return record_all(path);
  std::ifstream file(EBB_GOLDEN);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  std::size_t programs = 0;
  for (std::size_t at = 0; at < text.size(); ++programs) {
    const std::size_t end = std::min(text.find(kBegin, at + 1), text.size());
    auto replayed = trace::replay(std::string_view(text).substr(at, end - at));
    ASSERT_TRUE(replayed) << "program " << programs << ": " << replayed.error().message;
    EXPECT_FALSE(replayed->difference) << "program " << programs << ", " << *replayed->difference;
    EXPECT_GT(replayed->commands, 0u) << "program " << programs;
    at = end;
  }
  EXPECT_EQ(programs, kPrograms);
}

struct Large {
  std::string name;
  MachineModel machine;
  Program program;
  Options options = {};
};

// Small checkpoints that fill both caches, of a store that keeps the newest five.
Large small_kept() {
  constexpr Bytes kCache = 2 << 20;
  Large out{.name = "small, kept", .machine = make_machine(kCache, kCache, 64 << 20), .program = {}};
  out.machine.planner.ephemeral = false;
  out.machine.planner.retention = {5, 0};
  out.options.syncs.interval = 1'000'000;
  for (Version v = 0; v < 1'200; ++v) out.program.ops.push_back(op::checkpoint(v, 128));
  return out;
}

// Ten thousand of mixed sizes over three tiers, hinted in a long list, read in another order than hinted here and
// there.
Large mixed_hinted() {
  Large out{.name = "mixed, hinted", .machine = make_machine(1 << 20, 8 << 20, 512 << 20), .program = {}};
  Random random(1);
  Shot shot;
  for (int i = 0; i < 10'000; ++i) shot.sizes.push_back(random.between(1, random.chance(0.1) ? 100'000 : 10'000));
  shot.interval = 3'000;
  out.program = program_of(shot, 2);
  for (Op& op : out.program.ops)
    if (op.kind == Op::Kind::restore && random.chance(0.1)) op = op::hint_front(op.version / 2);
  return out;
}

// Memory of other processes, lent, recalled and lost while two thousand checkpoints are there; some are borrowed
// meanwhile.
Large lent() {
  constexpr Bytes kGranule = 4096;
  planner::Machine machine;
  machine.tiers = {{"device", planner::Medium::device, 128 * kGranule, kGranule},
                   {"peer", planner::Medium::device, 0, kGranule},
                   {"host", planner::Medium::host, 2048 * kGranule, kGranule}};
  planner::connect(machine, 4);
  Large out{.name = "lent", .machine = model_of(machine), .program = {}};
  Random random(2);
  std::vector<Op>& ops = out.program.ops;
  for (planner::SegmentId s = 1; s <= 4; ++s) ops.push_back(op::lend(1, s, 256 * kGranule, 1 + s % 2));
  for (Version v = 0; v < 1'500; ++v) {
    ops.push_back(op::checkpoint(v, random.between(1, 2 * kGranule)));
    ops.push_back(op::hint_front(v));
    if (v % 50 == 49) {
      ops.push_back(op::borrow(v - 20));
      ops.push_back(op::release(v - 20, true));
    }
  }
  ops.push_back(op::recall(1, 1, 25 * kGranule));
  ops.push_back(op::recall(1, 2, 0, 1'000'000));
  ops.push_back(op::lose(1, 3));
  for (Version v = 1'500; v-- > 1'000;) ops.push_back(op::restore(v));
  return out;
}

constexpr std::uint64_t kEach = 1000;

// A line for each kEach events: the program, the last of the events, a digest of them and their commands.
std::string digests_of(const Large& large) {
  std::string lines, text;
  std::uint64_t events = 0;
  Simulation simulation(large.machine, {{large.program}}, large.options);
  const auto end_line = [&] {
    std::uint64_t digest = 0;
    for (const char letter : text) digest = mixed(digest ^ static_cast<unsigned char>(letter));
    lines += large.name + ", until event " + std::to_string(events) + ": " + std::to_string(digest) + "\n";
    text.clear();
  };
  simulation.observer = [&](int, const planner::Event& event, const planner::Output& output) {
    trace::append_text(text, event);
    trace::append_text(text, output);
    if (++events % kEach == 0) end_line();
  };
  while (simulation.step()) {
  }
  end_line();
  return lines;
}

TEST(Golden, DigestsOfLargeProgramsAreAsTheyWereRecorded) {
  std::string found;
  for (const Large& large : {small_kept(), mixed_hinted(), lent()}) found += digests_of(large);
  if (const char* path = std::getenv("EBB_RECORD_LARGE")) {
    std::ofstream(path) << found;
    return;
  }
  std::ifstream recorded(EBB_GOLDEN_LARGE);
  std::istringstream lines(found);
  std::string is, was;
  while (std::getline(recorded, was)) {
    std::getline(lines, is);
    ASSERT_EQ(is, was) << "the first difference";
  }
  EXPECT_FALSE(std::getline(lines, is)) << is;
}

}  // namespace
}  // namespace ebb::sim::testing
