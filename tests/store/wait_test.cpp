// What `wait` and `done` promise: whom they wait for, how they are ended, which levels there are.
#include <atomic>
#include <future>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

std::vector<Source> room_of(std::size_t bytes) { return {{0, nullptr, bytes}}; }

TEST(Wait, WaitsForNothingThatIsWrittenAfterItBegan) {
  Rig rig(Backend::threads, {.device = 2 * kSize, .host = 0, .disk = 0});
  Store& store = rig.store();
  Reservation first = store.reserve(1, room_of(kSize)).value(), second = store.reserve(2, room_of(kSize)).value();
  // Both writers wait for room; the wait begins between them.
  const auto write_there = [&](Version version) {
    return std::async(std::launch::async,
                      [&store, version] { return code_of(write(store, version, kSize, {.timeout = Seconds(600)})); });
  };
  auto earlier = write_there(3);
  await_known(store, 3);
  std::promise<void> began;
  std::atomic<int> asked = 0;
  auto waiting = std::async(std::launch::async, [&] {
    return code_of(store.wait("device", Seconds(600), [&] {
      if (asked++ == 0) began.set_value();
      return false;
    }));
  });
  began.get_future().get();
  auto later = write_there(4);
  await_known(store, 4);
  first.abandon();
  EXPECT_EQ(waiting.get(), Errc::ok);
  EXPECT_EQ(earlier.get(), Errc::ok);
  EXPECT_EQ(code_of(store.wait(4, "device", Seconds(0))), Errc::timed_out) << "it was written after all";
  second.abandon();
  EXPECT_EQ(later.get(), Errc::ok);
}

TEST(Wait, EndsAsATimeoutWouldWhenItIsInterrupted) {
  Rig rig(Backend::threads, {.device = 0, .host = 0});
  Store& store = rig.store();
  rig.files().hold(FileCall::write);
  auto writing = std::async(std::launch::async, [&] { return code_of(write(store, 1, kSize)); });
  rig.files().await_held(FileCall::write, 1);
  int asked = 0;
  const auto interrupted = [&] { return ++asked == 2; };
  const auto all = store.wait("local", Seconds(600), interrupted);
  EXPECT_EQ(asked, 2);
  ASSERT_EQ(code_of(all), Errc::timed_out);
  EXPECT_NE(all.error().message.find("interrupted"), std::string::npos) << all.error().message;
  asked = 0;
  EXPECT_EQ(code_of(store.wait(1, "local", {}, interrupted)), Errc::timed_out);
  rig.files().release(FileCall::write);
  EXPECT_EQ(writing.get(), Errc::ok);
  EXPECT_TRUE(store.wait("local", {}, interrupted));
  expect_restored(store, 1, kSize);
}

TEST(Wait, SaysWhatItWaitedForWhenTheTimePasses) {
  Rig rig(Backend::threads, {.host = 0});
  Store& store = rig.store();
  write(store, 1, kSize).value();
  store.wait("local").value();
  rig.files().hold(FileCall::write);
  write(store, 2, kSize).value();
  write(store, 3, kSize).value();
  rig.files().await_held(FileCall::write, 1);
  const auto all = store.wait("local", Seconds(0.001)), one = store.wait(3, "local", Seconds(0.001));
  rig.files().release(FileCall::write);
  ASSERT_EQ(code_of(all), Errc::timed_out);
  EXPECT_NE(all.error().message.find("version 2 is not, and 1 more"), std::string::npos) << all.error().message;
  ASSERT_EQ(code_of(one), Errc::timed_out);
  EXPECT_NE(one.error().message.find("version 3 was"), std::string::npos) << one.error().message;
  for (const auto& error : {all.error(), one.error()}) {
    EXPECT_NE(error.message.find(rig.setup().directory.string()), std::string::npos) << error.message;
  }
}

TEST(Wait, DoneRefusesTheLevelsThatWaitRefuses) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  const Future future = write(store, 1, kSize).value();
  const auto code_of_done = [](const Future& asked, std::string_view level) {
    try {
      static_cast<void>(asked.done(level));
      return Errc::ok;
    } catch (const BadResult& refused) {
      return refused.error().code;
    }
  };
  std::vector<std::byte> bytes(kSize);
  const Target target{0, bytes.data(), kSize};
  const Future restoring = store.restore_async(1, std::span(&target, 1), {.keep = true}).value();
  for (const std::string_view level : {"device", "ephemeral", "local", "process", "node", "storage", "tape"}) {
    EXPECT_EQ(code_of_done(future, level), code_of(future.wait(level))) << level;
    EXPECT_EQ(code_of_done(restoring, level), Errc::invalid_argument) << level;
  }
  EXPECT_EQ(code_of_done(future, "process"), Errc::unsupported);
  EXPECT_EQ(code_of_done(future, "tape"), Errc::invalid_argument);
  EXPECT_TRUE(restoring.wait());
  ASSERT_TRUE(store.drop(1));
  EXPECT_TRUE(future.done("device"));
  EXPECT_EQ(code_of_done(future, "process"), Errc::unsupported) << "whatever has become of the version";
}

// Its end is told by a destructor: once, when a restore has ended, at once if it has, and at the latest by close.
TEST(Wait, WhatAFutureKeepsIsGoneWhenItHasEnded) {
  Rig rig(Backend::threads, {.device = 0, .host = 0});
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kSize).value().wait("local"));
  std::vector<std::byte> bytes(kSize);
  const Target target{0, bytes.data(), kSize};
  const auto restoring = [&] { return store.restore_async(1, std::span(&target, 1), {.keep = true}).value(); };
  std::atomic<int> ended = 0;
  std::promise<void> told;
  const auto telling = [&](std::promise<void>* whom) {
    return std::shared_ptr<const void>(&ended, [&ended, whom](const void*) {
      ++ended;
      if (whom != nullptr) whom->set_value();
    });
  };
  rig.files().hold(FileCall::read);
  const Future first = restoring();
  rig.files().await_held(FileCall::read, 1);
  first.keep_until_ended(telling(nullptr));
  EXPECT_EQ(ended, 0);
  first.keep_until_ended(telling(&told));
  EXPECT_EQ(ended, 1) << "the first was replaced";
  EXPECT_FALSE(first.done());
  rig.files().release(FileCall::read);
  told.get_future().get();
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(bytes == bytes_of(1, kSize));
  first.keep_until_ended(telling(nullptr));
  EXPECT_EQ(ended, 3) << "it has ended already";

  std::vector<Future> left;
  for (int i = 0; i < 8; ++i) left.push_back(restoring());
  for (const Future& one : left) one.keep_until_ended(telling(nullptr));
  static_cast<void>(store.close());
  EXPECT_EQ(ended, 11);
}

// A writer that sleeps while its version is written, consumed and reserved anew must not take the reservation for its
// own checkpoint. The Interrupt runs on the writer's thread just between.
TEST(Wait, AWriterThatWakesLateLeavesTheVersionThatIsThereNowAlone) {
  constexpr std::size_t kOne = 16 * kKiB;  // one transfer
  Rig rig(Backend::threads, {.device = kOne, .host = 0});
  Store& store = rig.store();
  Reservation filling = store.reserve(9, room_of(kOne)).value();  // so that version 1 goes to the file at once
  std::optional<Reservation> anew;
  rig.files().hold(FileCall::write);
  const auto meanwhile = [&] {
    if (anew) return false;
    rig.files().await_held(FileCall::write, 1);
    rig.files().release(FileCall::write);
    expect_restored(store, 1, kOne);
    filling.abandon();
    auto reserved = store.reserve(1, room_of(kOne), {.timeout = Seconds(600)});
    EXPECT_TRUE(reserved) << reserved.error().message;
    if (reserved) anew.emplace(std::move(*reserved));
    return false;
  };
  EXPECT_TRUE(write(store, 1, kOne, {.interrupted = meanwhile}));
  ASSERT_TRUE(anew);
  EXPECT_EQ(code_of(store.info(1)), Errc::unknown_version) << "a reservation that is not committed was told of";
  EXPECT_TRUE(store.versions().value().empty());
  EXPECT_TRUE(anew->commit());
  EXPECT_EQ(store.versions(), std::vector<Version>{1});
  EXPECT_EQ(store.stats().checkpoints, 2u);
}

}  // namespace
}  // namespace ebb::store
