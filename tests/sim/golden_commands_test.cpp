// What the planner decides, as it was recorded: the events of 200 random programs (ephemeral and persistent stores,
// calls in stream order, faults, retention, memory that ends early) and, byte for byte, each command it gave for them.
// A change of policy changes this file on purpose, and its commit says which commands differ and why:
//   EBB_RECORD=golden.txt build/dev/tests/sim/golden_commands_test && tar -cJf tests/sim/golden.tar.xz golden.txt
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

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

}  // namespace
}  // namespace ebb::sim::testing
