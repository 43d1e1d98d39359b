// Lenders and borrowers that are killed, at every step of what they say to each other: nobody waits for them, what is
// lent stays readable while anybody has it, and is free only when nobody does.
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <thread>

#include "parties.hpp"
#include "tests/long_form.hpp"

namespace ebb::share {
namespace {

using test::in_child;
using test::kLease;
using test::kLong;
using test::LaterChild;
using test::Place;
using test::status_of;
using test::TestBorrower;
using test::TestLender;

void kill_self() { ::kill(::getpid(), SIGKILL); }

// Ends its process where it makes or maps memory: in the middle of a grant, on either side.
class Fatal final : public device::PeerFabric {
 public:
  std::size_t granularity() const noexcept override { return memory_->granularity(); }
  Result<std::unique_ptr<device::LentMemory>> lend(std::size_t bytes) override {
    if (made_++ > 0) kill_self();
    return memory_->lend(bytes);
  }
  Result<std::shared_ptr<std::byte>> map(const device::LentMemory& lent) override { return memory_->map(lent); }
  Result<std::shared_ptr<std::byte>> map(int descriptor, std::size_t bytes) override {
    auto mapped = memory_->map(descriptor, bytes);
    kill_self();
    return mapped;
  }

 private:
  int made_ = 0;
  std::unique_ptr<device::PeerFabric> memory_ = device::make_host_fabric();
};

// What a borrower does, step by step; it ends after so many.
constexpr int kBorrowerSteps = 8;
void borrow_until(const Place& place, int step) {
  const auto reached = [&](int n) {
    if (n == step) kill_self();
  };
  reached(0);
  TestBorrower borrower(place, UINT64_MAX, step == 2 ? std::make_shared<Fatal>() : nullptr);
  reached(1);  // it may have asked by now
  const std::uint32_t lease = *borrower.await_lent(1).begin();
  auto memory = borrower->use_lease(lease).value();  // 2: while it maps it
  reached(3);
  std::memset(memory.get(), 1, kLease);
  reached(4);
  borrower.await_recalled(1);
  reached(5);
  memory.reset();
  reached(6);
  borrower->return_lease(lease);
  reached(7);
}

TEST(LeaseKilled, a_borrower_that_is_killed_at_any_step_leaves_nothing_lent_and_nobody_waiting) {
  for (int step = 0; step < kBorrowerSteps; ++step) {
    SCOPED_TRACE(step);
    const Place place;
    LaterChild child([&] { borrow_until(place, step); });
    TestLender lender(place, 1);
    const pid_t pid = child.begin();
    if (step >= 4) {
      lender.await([&] { return lender.lent() == kLease; });
      EXPECT_TRUE(lender->offer(0, kLong));
    }
    EXPECT_TRUE(WIFSIGNALED(status_of(pid)));
    EXPECT_TRUE(lender->offer(0, kLong));
    EXPECT_EQ(lender.lent(), 0u);
    ASSERT_TRUE(lender->offer(kLease, kLong));
    TestBorrower next(place);
    EXPECT_EQ(next.await_lent(1).size(), 1u);
  }
}

TEST(LeaseKilled, what_a_dead_borrowers_child_may_still_use_is_not_free) {
  const Place place;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  LaterChild child([&] {
    TestBorrower borrower(place);
    auto memory = borrower->use_lease(*borrower.await_lent(1).begin()).value();
    const pid_t grandchild = in_child([] { ::pause(); });
    static_cast<void>(!::write(ends[1], &grandchild, sizeof grandchild));
    ::pause();
  });
  TestLender lender(place, 1);
  const pid_t pid = child.begin();
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ends[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  ::kill(pid, SIGKILL);
  status_of(pid);
  const auto orphaned = [&] {
    const auto leases = lender->state().leases;
    return leases.size() == 1 && leases[0].state == planner::LeaseState::orphaned;
  };
  lender.await(orphaned);
  const auto late = lender->offer(0, std::chrono::nanoseconds{0});
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("process " + std::to_string(pid)), std::string::npos) << late.error().message;
  EXPECT_TRUE(orphaned());
  ::kill(grandchild, SIGKILL);
  EXPECT_TRUE(lender->offer(0, kLong));
  EXPECT_EQ(lender.lent(), 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

// Before it listens, while it makes the second lease, and once all is lent.
TEST(LeaseKilled, what_a_lender_lent_that_is_killed_is_recalled_and_readable_until_it_is_returned) {
  os::PosixFiles files;
  for (const int step : {1, 2}) {
    SCOPED_TRACE(step);
    const Place place;
    LaterChild child([&] {
      TestLender lender(place, 2, step == 1 ? std::make_shared<Fatal>() : nullptr);
      ::pause();
    });
    const pid_t pid = child.begin();
    TestBorrower borrower(place);
    std::uint32_t lease = 0;
    std::shared_ptr<std::byte> memory;
    if (step == 2) {
      lease = *borrower.await_lent(2).begin();
      memory = borrower->use_lease(lease).value();
      std::memset(memory.get(), 7, kLease);
      ::kill(pid, SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(status_of(pid)));
    if (step == 2) {
      const auto recalled = borrower.await_recalled(2);
      for (std::uint64_t at = 0; at < kLease; ++at) ASSERT_EQ(memory.get()[at], std::byte{7});
      memory.reset();
      for (const std::uint32_t one : recalled) borrower->return_lease(one);
      EXPECT_TRUE(borrower->leases().empty());
    }
    TestLender next(place, 1);  // which tidies up after it
    next.await([&] { return next.lent() == kLease; });
    EXPECT_EQ(find_lenders(*place.seams().memory, files).value().size(), 1u);
    EXPECT_EQ(place.seams().memory->list().value().size(), 2u) << "a file, and a socket beside it";
  }
}

TEST(LeaseKilled, a_lender_that_never_answers_holds_nobody_up) {
  const Place place;
  LaterChild child([&] {
    TestLender lender(place, 1);
    ::pause();
  });
  const pid_t pid = child.begin();
  os::PosixFiles files;
  while (find_lenders(*place.seams().memory, files).value().empty()) std::this_thread::yield();
  ::kill(pid, SIGSTOP);
  {
    TestBorrower borrower(place);
    TestLender other(place, 1);
    borrower.await_lent(1);
  }
  ::kill(pid, SIGKILL);
  status_of(pid);
}

// Both ends come and go at once, and one after the other is killed at a moment that nobody chose: each lease has the
// bytes of its borrower alone, and in the end the lender has everything back.
TEST(LeaseKilled, kills_at_any_moment_leave_no_wrong_byte) {
  const int rounds = long_form() ? 500 : 10;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    const Place place;
    const auto work = [&](int salt) {
      TestBorrower borrower(place, 2 * kLease);
      const std::uint32_t lease = *borrower.await_lent(1).begin();
      const auto memory = borrower->use_lease(lease).value();
      for (int turn = 0;; ++turn) {
        const auto value = static_cast<std::byte>(salt + turn);
        for (std::uint64_t at = 0; at < kLease; at += 4096) memory.get()[at] = value;
        for (std::uint64_t at = 0; at < kLease; at += 4096) {
          if (memory.get()[at] != value) ::_exit(1);  // someone else has it too
        }
      }
    };
    LaterChild first([&] { work(1); }), second([&] { work(2); });
    TestLender lender(place, 3);
    const pid_t pids[] = {first.begin(), second.begin()};
    std::mt19937 random(static_cast<std::uint32_t>(round));
    const auto give_time = [&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000)); };
    for (const pid_t pid : pids) {
      give_time();
      static_cast<void>(static_cast<bool>(lender->offer(random() % 4 * kLease, std::chrono::nanoseconds{0})));
      ::kill(pid, SIGKILL);
      const int status = status_of(pid);
      EXPECT_TRUE(WIFSIGNALED(status)) << "it exited with " << WEXITSTATUS(status);
    }
    EXPECT_TRUE(lender->offer(0, kLong));
    EXPECT_EQ(lender.lent(), 0u);
  }
}

}  // namespace
}  // namespace ebb::share
