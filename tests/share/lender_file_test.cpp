#include "share/leases/lender_file.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/doubles/fake_shared_memory.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using doubles::FakeSharedMemory;
using doubles::SharedCall;
using test::Place;

TEST(LenderFile, its_name_says_who_lends_and_nothing_else_is_taken_for_one) {
  const LenderName name{"job-a%20b", {4711, 123456789}, 2};
  EXPECT_EQ(name.file(), "job-a%20b.lends.4711-123456789-2");
  EXPECT_EQ(LenderName::of_file(name.file()), name);
  for (const char* other : {"job-a.pool", ".lends.1-2-3", "a.lends.1-2", "a.lends.0-2-3", "a.lends.1-2-3x", "a.lends.",
                            "a.lends.99999999999-1-1", "a.lends.1--1"}) {
    EXPECT_FALSE(LenderName::of_file(other)) << other;
  }
}

TEST(LenderFile, what_is_written_is_read_and_goes_with_the_lender) {
  const Place place;
  os::PosixFiles files;
  const auto seams = place.seams();
  const auto self = os::process_id(files, ::getpid()).value();
  {
    auto first = LenderFile::create(seams.memory, {"job-test", self}).value();
    auto second = LenderFile::create(seams.memory, {"job-test", self}).value();
    EXPECT_NE(first.name(), second.name());
    EXPECT_FALSE(read_lender(*seams.memory, first.name()).value()) << "nothing is written yet";
    LenderState state{3, 8ull << 30, 250'000, {{7, 4711, 1ull << 30, planner::LeaseState::overdue}}};
    for (std::uint32_t n = 0; n < 100; ++n) state.leases.push_back({n, 1, 64 << 20, planner::LeaseState::lent});
    first.write(state);
    const LenderState found = read_lender(*seams.memory, first.name()).value().value();
    EXPECT_EQ(found.gpu, 3);
    EXPECT_EQ(found.offered, 8ull << 30);
    EXPECT_EQ(found.link, 250'000u);
    ASSERT_EQ(found.leases.size(), 63u);  // as many as there is room for
    EXPECT_EQ(found.not_shown, 38u);
    EXPECT_EQ(found.leases[0].borrower, 4711);
    EXPECT_EQ(found.leases[0].state, planner::LeaseState::overdue);
    state.leases.resize(63);
    first.write(state);
    EXPECT_EQ(read_lender(*seams.memory, first.name()).value().value().not_shown, 0u);
    EXPECT_EQ(find_lenders(*seams.memory, files).value().size(), 2u);
  }
  EXPECT_TRUE(seams.memory->list().value().empty());
}

// As a lender in another PID namespace is: no process here has its number.
TEST(LenderFile, one_that_is_held_is_no_dead_ones_though_its_process_is_not_seen) {
  const Place place;
  os::PosixFiles files;
  const auto seams = place.seams();
  const os::ProcessId unseen{4711, 1};
  std::optional<LenderFile> lender = LenderFile::create(seams.memory, {"job-test", unseen}).value();
  const auto listener = seams.sockets->listen(lender->name().socket()).value();
  remove_dead_lenders(seams, files);
  EXPECT_EQ(seams.memory->list().value().size(), 2u) << "its file and its socket";
  EXPECT_TRUE(find_lenders(*seams.memory, files).value().empty()) << "nothing is borrowed from it";
  const std::string file = lender->name().file();
  lender.reset();
  static_cast<void>(seams.memory->create(file).value());  // as a killed one leaves it
  remove_dead_lenders(seams, files);
  const auto left = seams.memory->list().value();
  EXPECT_EQ(std::ranges::find(left, file), left.end());
}

TEST(LenderFile, one_that_cannot_be_made_leaves_nothing) {
  os::PosixFiles files;
  const auto self = os::process_id(files, ::getpid()).value();
  for (const auto call : {SharedCall::hold, SharedCall::allocate, SharedCall::map}) {
    const auto memory = std::make_shared<FakeSharedMemory>();
    memory->faults().fail_nth(call, 1, ENOSPC);
    EXPECT_FALSE(LenderFile::create(memory, {"job-test", self}));
    EXPECT_TRUE(memory->list().value().empty());
  }
}

}  // namespace
}  // namespace ebb::share
