// A signal suspends a store: what was written is durable, the mark says so, and the program's calls end.
#include <csignal>
#include <future>

#include "child.hpp"
#include "ebbtide/file.hpp"
#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

/// SIGUSR1: a test that fails to suspend then ends by name, not by the signal.
struct Suspending : KeptRig {
  Store& store;
  Suspending() : store(open()) { suspend_on({.within = Seconds(60)}); }
  void suspend_on(const SuspendOptions& options) {
    const auto done = store.suspend_on(SIGUSR1, options);
    ASSERT_TRUE(done) << done.error().message;
  }
};

// In a child; a sanitizer may deliver the signal a little later.
int dies_of_it() {
  ::raise(SIGUSR1);
  return ::pause();
}

void expect_mark(KeptRig& rig, bool there) {
  Store& next = rig.open();
  const auto mark = next.suspended();
  ASSERT_TRUE(mark) << mark.error().message;
  EXPECT_EQ(mark->has_value(), there);
}

TEST(Suspend, TheNextCallEndsWhenEverythingIsDurableAndMarked) {
  Suspending rig;
  const auto before = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  EXPECT_EQ(rig.store.suspended().value(), std::nullopt);
  History other = rig.store.history("other");
  for (Version v : {1, 2}) ASSERT_TRUE(write(rig.store, v, kSize));
  ASSERT_TRUE(write(other, 7, kSize));
  ::raise(SIGUSR1);
  EXPECT_EQ(code_of(write(rig.store, 3, kSize)), Errc::suspended);
  EXPECT_GE(rig.store.suspended().value().value(), before);
  // Read by another store, as another process would: all of it was in the files when that call ended.
  Rig reader{Backend::threads, {}};
  reader.setup().directory = rig.path();
  reader.setup().readonly = true;
  reader.setup().machine.ephemeral = false;
  for (Version v : {1, 2}) expect_restored(reader.store(), v, kSize);
  History seen = reader.store().history("other");
  expect_restored(seen, 7, kSize);
  EXPECT_TRUE(reader.store().suspended().value());
  EXPECT_EQ(reader.store().histories().value(), (std::vector<std::string>{"", "other"})) << "the mark is not one";
}

// Schedulers signal more than once: a call that saw the signal must not wait for a drain that never comes.
TEST(Suspend, AnotherSignalHoldsUpNoCall) {
  Suspending rig;
  ASSERT_TRUE(write(rig.store, 1, kSize));
  for (int i = 0; i < 2000; ++i) {
    ::raise(SIGUSR1);
    ASSERT_EQ(code_of(rig.store.check_suspended()), Errc::suspended);
  }
}

TEST(Suspend, EveryCallThatWritesReadsOrWaitsEnds) {
  Suspending rig;
  Store& store = rig.store;
  History other = store.history("other");
  std::vector<std::byte> memory(64 * kKiB);
  const Source source{0, memory.data(), 8};
  const Target target{0, memory.data(), kSize};
  keep(store, 1);
  Reservation reserved = store.reserve(5, std::span(&source, 1)).value();
  File file = store.create_file("f", 1).value();
  ::raise(SIGUSR1);
  EXPECT_EQ(code_of(store.check_suspended()), Errc::suspended);
  EXPECT_EQ(code_of(store.checkpoint(2, {source})), Errc::suspended);
  EXPECT_EQ(code_of(other.checkpoint(2, {source})), Errc::suspended);
  EXPECT_EQ(code_of(store.restore(1, {target})), Errc::suspended);
  EXPECT_EQ(code_of(store.restore_async(1, std::span(&target, 1))), Errc::suspended);
  EXPECT_EQ(code_of(store.info(1)), Errc::suspended);
  EXPECT_EQ(code_of(store.latest()), Errc::suspended);
  EXPECT_EQ(code_of(store.hint({1})), Errc::suspended);
  EXPECT_EQ(code_of(store.hint_front(1)), Errc::suspended);
  EXPECT_EQ(code_of(store.unhint()), Errc::suspended);
  EXPECT_EQ(code_of(store.start_prefetch()), Errc::suspended);
  EXPECT_EQ(code_of(store.wait("storage")), Errc::suspended);
  EXPECT_EQ(code_of(store.drop(1)), Errc::suspended);
  EXPECT_EQ(code_of(store.drop()), Errc::suspended);
  EXPECT_EQ(code_of(store.reserve(2, std::span(&source, 1))), Errc::suspended);
  EXPECT_EQ(code_of(store.borrow(1)), Errc::suspended);
  // What only looks, and what is in hand, goes on.
  EXPECT_EQ(store.versions().value(), (std::vector<Version>{1}));
  EXPECT_EQ(store.histories().value(), (std::vector<std::string>{""}));
  EXPECT_TRUE(reserved.commit());
  ASSERT_TRUE(store.close());
  EXPECT_EQ(code_of(store.check_suspended()), Errc::suspended) << "closed or not";
  file.abandon();
  expect_mark(rig, true);
  EXPECT_EQ(rig.rig().store().versions().value(), (std::vector<Version>{1, 5}));
}

TEST(Suspend, AProgramThatMakesNoCallIsDrainedAllTheSame) {
  Suspending rig;
  ASSERT_TRUE(write(rig.store, 1, kSize));
  ::raise(SIGUSR1);
  Rig reader{Backend::threads, {}};
  reader.setup().directory = rig.path();
  reader.setup().readonly = true;
  reader.setup().machine.ephemeral = false;
  while (!reader.store().suspended().value()) std::this_thread::yield();  // by nobody's call
  expect_restored(reader.store(), 1, kSize);
}

TEST(Suspend, ClosingWaitsForTheMarkAndThenTheSignalDoesWhatItDidBefore) {
  Suspending rig;
  ASSERT_TRUE(write(rig.store, 1, kSize));
  ::raise(SIGUSR1);
  ASSERT_TRUE(rig.store.close());
  EXPECT_EQ(in_a_child(dies_of_it), 128 + SIGUSR1);
  expect_mark(rig, true);
}

TEST(Suspend, TheMarkStaysUntilItIsClearedAndThenTheStoreGoesOn) {
  Suspending rig;
  ::raise(SIGUSR1);
  EXPECT_EQ(code_of(write(rig.store, 1, kSize)), Errc::suspended);
  for (int start = 0; start < 2; ++start) expect_mark(rig, true);
  Store& next = rig.rig().store();
  keep(next, 1);  // a mark stops nobody
  ASSERT_TRUE(next.clear_suspended());
  EXPECT_EQ(next.suspended().value(), std::nullopt);
  expect_mark(rig, false);
  // In the process that was suspended too.
  Store& again = rig.rig().store();
  ASSERT_TRUE(again.suspend_on(SIGUSR1));
  for (Version v : {2, 3}) {
    ::raise(SIGUSR1);
    EXPECT_EQ(code_of(write(again, v, kSize)), Errc::suspended);
    ASSERT_TRUE(again.clear_suspended());
    ASSERT_TRUE(write(again, v, kSize));
  }
  ASSERT_TRUE(again.close());
  expect_mark(rig, false);
}

TEST(Suspend, PastItsTimeItIsAnErrorWithoutAMarkAndOlderVersionsAreIntact) {
  Suspending rig;
  keep(rig.store, 1);
  rig.suspend_on({.within = Seconds(0.05)});
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(rig.store, 2, kSize));
  ::raise(SIGUSR1);
  const auto refused = write(rig.store, 3, kSize);
  ASSERT_EQ(code_of(refused), Errc::timed_out);
  EXPECT_NE(refused.error().message.find("SIGUSR1 came, and the store could not be suspended"), std::string::npos);
  rig.files().release(FileCall::write);
  EXPECT_EQ(rig.store.suspended().value(), std::nullopt);
  ASSERT_TRUE(write(rig.store, 3, kSize)) << "it is told once";
  EXPECT_EQ(rig.lines().starting("warning: not suspended").size(), 1u);
  ASSERT_TRUE(rig.store.close());
  expect_mark(rig, false);
  for (Version v : {1, 2, 3}) expect_restored(rig.rig().store(), v, kSize);
}

TEST(Suspend, ACallThatWaitsForTheDrainCanBeInterrupted) {
  Suspending rig;
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(rig.store, 1, kSize));
  ::raise(SIGUSR1);
  EXPECT_EQ(code_of(rig.store.check_suspended([] { return true; })), Errc::timed_out);
  EXPECT_EQ(code_of(rig.store.close([] { return true; })), Errc::timed_out);
  rig.files().release(FileCall::write);
  EXPECT_EQ(code_of(rig.store.check_suspended()), Errc::suspended);
}

TEST(Suspend, AFullDiskIsNamedAndLeavesNoMark) {
  KeptRig rig(Backend::threads, {.disk = 128 * kKiB});
  Store& store = rig.open();
  ASSERT_TRUE(store.suspend_on(SIGUSR1, {.within = Seconds(60)}));
  keep(store, 1);
  rig.files().fail_at_rate(FileCall::write, 1.0, ENOSPC);
  rig.files().fail_at_rate(FileCall::preallocate, 1.0, ENOSPC);
  ASSERT_TRUE(write(store, 2, kSize));
  ::raise(SIGUSR1);
  EXPECT_EQ(code_of(write(store, 3, kSize)), Errc::no_space);
  rig.files().clear_faults();
  static_cast<void>(static_cast<bool>(store.close()));
  expect_mark(rig, false);
  expect_restored(rig.rig().store(), 1, kSize);
}

TEST(Suspend, AMarkThatCannotBeStoredIsNotThere) {
  Suspending rig;
  keep(rig.store, 1);
  rig.files().fail_at_rate(FileCall::write, 1.0, EIO);  // nothing is left to drain: the mark alone meets it
  ::raise(SIGUSR1);
  const auto refused = write(rig.store, 2, kSize);
  EXPECT_NE(code_of(refused), Errc::ok);
  EXPECT_NE(code_of(refused), Errc::suspended);
  rig.files().clear_faults();
  EXPECT_EQ(rig.store.suspended().value(), std::nullopt);
  static_cast<void>(static_cast<bool>(rig.store.close()));
  expect_mark(rig, false);
  expect_restored(rig.rig().store(), 1, kSize);
}

TEST(Suspend, WhatCannotBeIsRefusedByName) {
  Suspending rig;
  EXPECT_EQ(code_of(rig.store.suspend_on(SIGKILL)), Errc::invalid_argument);
  EXPECT_EQ(code_of(rig.store.suspend_on(0)), Errc::invalid_argument);
  EXPECT_EQ(code_of(rig.store.suspend_on(SIGUSR1, {.within = Seconds(0)})), Errc::invalid_argument);
  EXPECT_EQ(code_of(rig.store.suspend_on(SIGUSR1, {.level = "host"})), Errc::invalid_argument);
  EXPECT_EQ(code_of(rig.store.suspend_on(SIGUSR1, {.level = "node"})), Errc::unsupported);
  EXPECT_EQ(code_of(rig.store.history(std::string(kReservedForSuspension)).checkpoint(1, {})), Errc::invalid_argument);
  Rig ephemeral(Backend::threads);
  EXPECT_EQ(code_of(ephemeral.store().suspend_on(SIGUSR1)), Errc::unsupported);
  rig.close();
  rig.setup().readonly = true;
  EXPECT_EQ(code_of(rig.open().suspend_on(SIGUSR1)), Errc::unsupported);
  EXPECT_EQ(code_of(rig.rig().store().clear_suspended()), Errc::unsupported);
}

TEST(Suspend, AForkedChildIsRefusedByName) {
  Suspending rig;
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(rig.store, 1, kSize));
  ::raise(SIGUSR1);  // under way when it forks
  EXPECT_EQ(in_a_child([&] { return static_cast<int>(code_of(write(rig.store, 2, kSize))); }),
            static_cast<int>(Errc::unsupported));
  rig.files().release(FileCall::write);
  EXPECT_EQ(code_of(rig.store.check_suspended()), Errc::suspended);
}

TEST(Suspend, SnapshotsInFlightAreDrainedToo) {
  // The engine's part: what is attached to the store is settled before the mark is written.
  struct Waiting final : Attached {
    std::promise<void> asked, settled;
    std::atomic<bool> first{true};
    Result<void> settle(std::optional<Version>, std::optional<Seconds>, const Interrupt&) override {
      if (!first.exchange(false)) return {};
      asked.set_value();
      settled.get_future().get();
      return {};
    }
    void dropped(std::optional<Version>) override {}
    bool in_flight(Version) override { return false; }
    Result<void> restore(Version, std::span<const Target>, const RestoreOptions&) override { return {}; }
    Result<void> end(const Interrupt&) override { return {}; }
  };
  Suspending rig;
  const auto attached = std::make_shared<Waiting>();
  ASSERT_TRUE(rig.rig().engine().attach(attached));
  ::raise(SIGUSR1);
  attached->asked.get_future().get();
  EXPECT_EQ(rig.store.suspended().value(), std::nullopt);
  attached->settled.set_value();
  EXPECT_EQ(code_of(rig.store.check_suspended()), Errc::suspended);
}

}  // namespace
}  // namespace ebb::store
