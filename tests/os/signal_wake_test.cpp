#include "os/signal_wake.hpp"

#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace ebb::os {
namespace {

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

volatile sig_atomic_t plain = 0, told = 0;
void count_plain(int) { plain = plain + 1; }
void count_told(int signal, siginfo_t* info, void*) { told = info->si_signo == signal ? told + 1 : -1000; }

struct sigaction now(int signal) {
  struct sigaction action{};
  ::sigaction(signal, nullptr, &action);
  return action;
}

TEST(SignalWake, ASleeperWakesAndIsToldWhichCame) {
  SignalWake wake;
  ASSERT_TRUE(wake.add(SIGTERM));
  ASSERT_TRUE(wake.add(SIGUSR1));
  std::uint64_t came = 0;
  std::thread sleeper([&] {
    while (wake.pending() == 0) wake.sleep();
    came = wake.take();
  });
  ::kill(::getpid(), SIGUSR1);
  sleeper.join();
  EXPECT_EQ(came, bit(SIGUSR1));
  EXPECT_EQ(wake.take(), 0u);
  ::raise(SIGTERM);  // the process lives: the signal's own effect does not happen
  EXPECT_EQ(wake.pending(), bit(SIGTERM));
}

struct sigaction below{};
void chain(int signal, siginfo_t* info, void* context) {
  told = told + 1;
  below.sa_sigaction(signal, info, context);
}

// A library's handler that calls the one before it, ours, is put under ours again: the signal goes round once.
TEST(SignalWake, AHandlerThatChainsToOursIsCalledOnce) {
  {
    SignalWake first;
    ASSERT_TRUE(first.add(SIGUSR1));
    struct sigaction chaining{};
    chaining.sa_sigaction = chain;
    chaining.sa_flags = SA_SIGINFO;
    ::sigaction(SIGUSR1, &chaining, &below);
    SignalWake second;
    ASSERT_TRUE(second.add(SIGUSR1));
    ::raise(SIGUSR1);
    EXPECT_EQ(told, 1);
    EXPECT_EQ(first.take(), bit(SIGUSR1));
    EXPECT_EQ(second.take(), bit(SIGUSR1));
  }
  ::signal(SIGUSR1, SIG_DFL);
  told = 0;
}

TEST(SignalWake, HandlersThatWereThereAreCalledAndComeBack) {
  struct sigaction with_info{};
  with_info.sa_sigaction = count_told;
  with_info.sa_flags = SA_SIGINFO;
  ::sigaction(SIGUSR1, &with_info, nullptr);
  ::signal(SIGUSR2, count_plain);
  {
    SignalWake first, second;
    for (SignalWake* wake : {&first, &second}) {
      ASSERT_TRUE(wake->add(SIGUSR1));
      ASSERT_TRUE(wake->add(SIGUSR2));
    }
    ::raise(SIGUSR1);
    ::raise(SIGUSR2);
    EXPECT_EQ(told, 1);
    EXPECT_EQ(plain, 1);
    EXPECT_EQ(first.take(), bit(SIGUSR1) | bit(SIGUSR2));
    EXPECT_EQ(second.take(), bit(SIGUSR1) | bit(SIGUSR2));
  }
  EXPECT_EQ(now(SIGUSR1).sa_sigaction, count_told);
  EXPECT_EQ(now(SIGUSR2).sa_handler, count_plain);
}

TEST(SignalWake, AHandlerThatCameLaterStays) {
  {
    SignalWake wake;
    ASSERT_TRUE(wake.add(SIGUSR2));
    ::signal(SIGUSR2, count_plain);
    const int before = plain;
    ::raise(SIGUSR2);
    EXPECT_EQ(plain, before + 1);
    EXPECT_EQ(wake.pending(), 0u) << "it took the place of the one that wakes";
  }
  EXPECT_EQ(now(SIGUSR2).sa_handler, count_plain);
}

TEST(SignalWake, AForkedChildDiesOfItAndTheParentIsNotWoken) {
  SignalWake wake;
  ASSERT_TRUE(wake.add(SIGTERM));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_EQ(wake.pending(), 0u);
}

TEST(SignalWake, WhatIsNoRequestIsRefusedAndSlotsComeBack) {
  SignalWake wake;
  for (const int wrong : {0, -1, 65, SIGKILL, SIGSTOP, SIGSEGV, SIGABRT, 32}) EXPECT_EQ(wake.add(wrong).error, EINVAL);
  std::vector<std::unique_ptr<SignalWake>> all;
  while (all.size() + 1 < SignalWake::kSlots) all.push_back(std::make_unique<SignalWake>());
  EXPECT_EQ(SignalWake().add(SIGTERM).error, EMFILE);
  all.pop_back();
  EXPECT_TRUE(SignalWake().add(SIGTERM));
  EXPECT_EQ(now(SIGTERM).sa_handler, SIG_DFL);
}

TEST(SignalWake, SignalsHaveNames) {
  EXPECT_EQ(name_of_signal(SIGTERM), "SIGTERM");
  EXPECT_EQ(name_of_signal(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

}  // namespace
}  // namespace ebb::os
