// A million planner events of random programs on random machines. After each: no overlap and no broken count
// (Planner::check), no illegal transition (it throws), no byte restored that was not written, no memory used twice
// (sim/content.hpp); at the end every call answered, refused only by a reason that holds (random_run.cpp), and where
// rates are as estimated and nothing fails, in time (the formula is in delay.cpp). With EBB_SEED and EBB_TRACE set,
// RandomProgramsFresh prints every event of that seed and what the planner gave for it; EBB_KIND=peers or splits are
// the programs of RandomPeers and RandomSplits.
#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>
#include <random>
#include <string>

#include "tests/long_form.hpp"
#include "tests/sim/random_run.hpp"

namespace ebb::sim::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kEvents = 20'000;
#else
constexpr std::uint64_t kEvents = 250'000;
#endif

using Change = void (*)(RandomCase&, std::uint64_t seed);

void check_seed(std::uint64_t seed, std::uint64_t& events, bool peers = false, Outcome* sums = nullptr,
                Change change = nullptr) {
  RandomCase c = random_case(seed, peers);
  if (change != nullptr) change(c, seed);
  try {
    const Outcome out = run_checked(c, std::getenv("EBB_TRACE") != nullptr);
    events += out.events;
    if (sums != nullptr) sums->paced += out.paced, sums->relayed += out.relayed, sums->split += out.split;
    ASSERT_LE(out.worst, 1.0) << "seed " << seed << ": a call took longer than it may, " << describe(c);
  } catch (const std::exception& e) {
    FAIL() << "seed " << seed << ": " << e.what() << "\n" << describe(c);
  }
}

class RandomPrograms : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomPrograms, KeepEveryPromise) {
  std::uint64_t events = 0;
  for (std::uint64_t seed = GetParam(); events < kEvents && !HasFatalFailure(); ++seed) check_seed(seed, events);
}
INSTANTIATE_TEST_SUITE_P(AMillionEvents, RandomPrograms, ::testing::Values(1, 100'001, 200'001, 300'001));

// Programs whose memory is lent, recalled and lost while they run.
TEST(RandomSegments, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : kEvents / 5;
  std::uint64_t events = 0;
  for (std::uint64_t seed = 400'001; events < most && !HasFatalFailure(); ++seed)
    if (random_case(seed).lent) check_seed(seed, events);
}

// The same, with memory of peers: none of it is there before it is lent, and it is copied to and from at the pace that
// its lenders set (pace_judge.hpp).
TEST(RandomPeers, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : 2 * kEvents;
  std::uint64_t events = 0;
  Outcome sums;
  for (std::uint64_t seed = 500'001; events < most && !HasFatalFailure(); ++seed)
    if (random_case(seed, true).lent) check_seed(seed, events, true, &sums);
  EXPECT_GT(sums.paced, events / 200);
  EXPECT_GT(sums.relayed, events / 1000);
}

// Replicas in two parts, of which either may be recalled or lost.
TEST(RandomSplits, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : 2 * kEvents;
  std::uint64_t events = 0;
  Outcome sums;
  for (std::uint64_t seed = 900'001; events < most && !HasFatalFailure(); ++seed)
    check_seed(seed, events, true, &sums, split_often);
  EXPECT_GT(sums.split, events / 2000);
}

// Programs over stores that keep in several files.
TEST(RandomLevels, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : kEvents;
  std::uint64_t events = 0;
  for (std::uint64_t seed = 600'001; events < most && !HasFatalFailure(); ++seed)
    if (random_case(seed).levels) check_seed(seed, events, false, nullptr, seed % 4 == 0 ? keep_more_above : nullptr);
}

// Programs whose own memory is the replica of some of what they write.
TEST(RandomAdoptions, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : kEvents;
  std::uint64_t events = 0;
  for (std::uint64_t seed = 700'001; events < most && !HasFatalFailure(); ++seed)
    check_seed(seed, events, seed % 4 == 0, nullptr, adopt_some);
}

// Programs whose checkpoints are mostly smaller than a granule.
TEST(RandomSmall, KeepEveryPromise) {
  const std::uint64_t most = long_form() ? 1'000'000 : kEvents;
  std::uint64_t events = 0;
  for (std::uint64_t seed = 800'001; events < most && !HasFatalFailure(); ++seed)
    check_seed(seed, events, seed % 4 == 0, nullptr, share_granules);
}

TEST(RandomProgramsFresh, KeepEveryPromise) {
  const char* given = std::getenv("EBB_SEED");
  const std::uint64_t first = given ? std::strtoull(given, nullptr, 10) : std::random_device{}() * 1000ull;
  std::cout << "EBB_SEED=" << first << "\n";
  std::uint64_t events = 0;
  const std::string kind = std::getenv("EBB_KIND") ? std::getenv("EBB_KIND") : "";
  for (std::uint64_t seed = first; events < kEvents / 10 && !HasFatalFailure(); ++seed)
    check_seed(seed, events, !kind.empty(), nullptr, kind == "splits" ? split_often : nullptr);
}

// Seeds that failed once.
TEST(RandomProgramsOnce, FailedAndDoNoMore) {
  std::uint64_t events = 0;
  constexpr std::uint64_t kSeeds[] = {7,
                                      12,
                                      18,
                                      34,
                                      44,
                                      53,
                                      59,
                                      78,
                                      84,
                                      85,
                                      104,
                                      146,
                                      152,
                                      191,
                                      215,
                                      524,
                                      4136,
                                      4490,
                                      5105,
                                      100'167,
                                      3'039'689'012,
                                      199'941'547'017,
                                      866'260'303'009,
                                      997'953'644'039,
                                      957'679'643'017,
                                      962'367'865'023,
                                      2'255'805'196'017,
                                      2'566'745'771'003,
                                      1000021,
                                      1001952,
                                      1002892,
                                      1003836,
                                      1005351,
                                      1005598,
                                      1010297,
                                      1014400,
                                      1022881,
                                      1056304};
  for (const std::uint64_t seed : kSeeds) check_seed(seed, events);
  check_seed(601'452, events, false, nullptr, keep_more_above);
  for (const std::uint64_t seed : {91'000'017, 98'000'169, 141'000'021})
    check_seed(seed, events, true, nullptr, split_often);
}

}  // namespace
}  // namespace ebb::sim::testing
