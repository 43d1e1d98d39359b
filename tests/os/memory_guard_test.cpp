// Faults of this thread in guarded work end it; every other fault is as it was.
#include "os/memory_guard.hpp"

#include <csignal>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "refused_pages.hpp"
#include "watched_memory.hpp"

namespace ebb::os {
namespace {

using testing::Refusal;
using testing::RefusedPages;
using testing::store;

[[gnu::noinline]] bool reads(const std::byte* at) {
  return try_touch([at] { static_cast<void>(*static_cast<const volatile std::byte*>(at)); });
}
[[gnu::noinline]] bool writes(std::byte* at) {
  return try_touch([at] { store(at, 1); });
}

TEST(MemoryGuard, says_what_can_be_read_and_written_any_number_of_times_and_on_any_thread) {
  const RefusedPages truncated(2, 1, Refusal::truncated), none(2, 1, Refusal::none), fixed(2, 1, Refusal::read_only);
  const auto look = [&] {
    for (int round = 0; round < 100; ++round) {
      for (const RefusedPages* one : {&truncated, &none, &fixed}) {
        ASSERT_TRUE(reads(one->data()));
        ASSERT_TRUE(writes(one->data()));
        ASSERT_EQ(reads(one->data() + kBlock), one == &fixed);
        ASSERT_FALSE(writes(one->data() + kBlock));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(look);
  look();
  for (std::thread& thread : threads) thread.join();
}

TEST(MemoryGuard, copies_up_to_the_fault) {
  const RefusedPages from(2, 1, Refusal::truncated);
  std::vector<std::byte> to(2 * kBlock, std::byte{9});
  store(from.data(), 5);
  EXPECT_FALSE(try_copy(to.data(), from.data(), to.size()));
  EXPECT_TRUE(try_copy(to.data(), from.data(), kBlock));
  EXPECT_EQ(to[0], std::byte{5});
  EXPECT_TRUE(try_copy(nullptr, nullptr, 0));
}

TEST(MemoryGuard, leaves_the_signal_mask_as_it_was) {
  sigset_t mine, before, after;
  ::sigemptyset(&mine);
  ::sigaddset(&mine, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &mine, nullptr);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  const RefusedPages none(1, 0, Refusal::none);
  EXPECT_FALSE(reads(none.data()));
  ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int number = 1; number < SIGRTMIN; ++number)
    EXPECT_EQ(::sigismember(&before, number), ::sigismember(&after, number)) << number;
}

void exit_7(int, siginfo_t*, void*) { std::_Exit(7); }

void handle(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handler;
  ::sigaction(number, &action, nullptr);
}

// What a process that faults in memory of its own ends with.
int ends_with(void (*before)(int), Refusal how, bool sent) {
  return testing::in_child([&] {
    const int number = how == Refusal::truncated ? SIGBUS : SIGSEGV;
    ::signal(number, SIG_DFL);  // not a sanitizer's
    if (before != nullptr) before(number);
    const RefusedPages pages(1, 0, how);
    if (reads(pages.data())) return 1;
    if (sent)
      ::raise(number);
    else
      store(pages.data(), 1);
    return 2;
  });
}

TEST(MemoryGuard, passes_every_other_fault_to_the_handler_before) {
  for (const Refusal how : {Refusal::truncated, Refusal::none}) {
    const int number = how == Refusal::truncated ? SIGBUS : SIGSEGV;
    for (const bool sent : {false, true}) {
      EXPECT_EQ(ends_with([](int signal) { handle(signal, exit_7); }, how, sent), 7);
      EXPECT_EQ(ends_with(nullptr, how, sent), 1000 + number);
    }
  }
}

// In its own process for each order: a handler is installed once.
TEST(MemoryGuard, lets_a_watch_answer_the_writes_of_guarded_work) {
  const auto steps = [](bool guard_first) {
    const RefusedPages none(1, 0, Refusal::none);
    if (guard_first && reads(none.data())) return 1;
    testing::TestMemory memory(4);
    memory.touch();
    auto watch = SystemWriteWatches().open(WatchForm::mprotect).value();
    testing::FaultThread faults(*watch);
    watch->watch(memory.all()).value();
    if (!watch->arm(memory.all())) return 2;
    for (std::size_t page = 0; page < 4; ++page)
      if (!writes(memory.at(page))) return 3;
    if (faults.written(memory).size() != 4) return 4;
    if (reads(none.data())) return 5;
    if (!watch->arm(memory.all())) return 6;  // the guard is in front of the watch now
    if (!writes(memory.at(2))) return 7;
    watch->forget(memory.all());
    return 0;
  };
  EXPECT_EQ(testing::in_child([&] { return steps(true); }), 0);
  EXPECT_EQ(testing::in_child([&] { return steps(false); }), 0);
}

}  // namespace
}  // namespace ebb::os
