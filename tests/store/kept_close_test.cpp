// What is dropped stays dropped, also when the store closes while it is still being written.
#include <algorithm>
#include <atomic>
#include <thread>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

TEST(KeptClose, WhatWasDroppedWhileItWasWrittenIsNotThereAgain) {
  KeptRig rig;
  keep(rig.open(), 1);
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(rig.rig().store(), 2, kSize));
  rig.files().await_held(FileCall::write, 1);
  ASSERT_TRUE(rig.rig().store().drop(2));
  std::thread closer([&] { EXPECT_TRUE(rig.rig().engine().close()); });
  while (code_of(rig.rig().store().drop(3)) != Errc::closed) std::this_thread::yield();
  rig.files().release(FileCall::write);
  closer.join();
  EXPECT_EQ(rig.open().versions(), std::vector<Version>{1});
}

// The disk says no until the end: what is dropped here is there for the next process, and somebody should know.
TEST(KeptClose, WhatCouldNotBeDroppedIsNamed) {
  KeptRig rig;
  for (const Version version : {1, 2}) keep(version == 1 ? rig.open() : rig.rig().store(), version);
  rig.files().fail_nth(FileCall::write, 1, EIO, doubles::FaultyFiles::kEver);
  ASSERT_TRUE(rig.rig().store().drop(1));
  ASSERT_TRUE(rig.rig().store().close());
  rig.files().clear_faults();
  const auto lines = rig.lines().starting("warning: ");
  ASSERT_EQ(lines.size(), 1u);
  for (const std::string& word : {std::string("version 1"), rig.path().string()}) {
    EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
  }
  EXPECT_EQ(rig.open().versions(), (std::vector<Version>{1, 2})) << "or nothing needed to be said";
}

// Files that do not answer while somebody asks for the end: nothing is lost, and it can be closed again.
TEST(KeptClose, AnInterruptEndsTheDrainingAndTheStoreStaysOpen) {
  KeptRig rig;
  Store& store = rig.open();
  keep(store, 1);
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(store, 2, kSize));
  rig.files().await_held(FileCall::write, 1);
  int asked = 0;
  const auto interrupted = store.close([&] { return ++asked == 2; });
  EXPECT_EQ(code_of(interrupted), Errc::timed_out);
  EXPECT_EQ(asked, 2);
  EXPECT_NE(interrupted.error().message.find("open still"), std::string::npos) << interrupted.error().message;
  ASSERT_TRUE(write(store, 3, kSize)) << "it is in use as before";
  rig.files().release(FileCall::write);
  EXPECT_TRUE(store.close([] { return false; }));
  EXPECT_EQ(code_of(store.drop(1)), Errc::closed);
  EXPECT_EQ(rig.open().versions(), (std::vector<Version>{1, 2, 3}));
}

TEST(KeptClose, WhoClosesBesideAnInterruptedOneClosesIt) {
  KeptRig rig;
  Store& store = rig.open();
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(store, 1, kSize));
  rig.files().await_held(FileCall::write, 1);
  std::atomic<bool> stop{false};
  std::thread first([&] { EXPECT_EQ(code_of(store.close([&] { return stop.load(); })), Errc::timed_out); });
  while (code_of(write(store, 2, kKiB)) != Errc::closed) std::this_thread::yield();  // it drains
  std::thread second([&] { EXPECT_TRUE(store.close()); });
  stop = true;
  first.join();
  rig.files().release(FileCall::write);
  second.join();
  EXPECT_EQ(code_of(store.drop(1)), Errc::closed);
  const std::vector<Version> left = rig.open().versions().value();
  EXPECT_TRUE(std::ranges::find(left, 1) != left.end());
}

void break_contract(Engine& engine) {
  const planner::event::Finished never_ordered{1'000'000};
  EXPECT_THROW(static_cast<void>(engine.histories().hint(0, never_ordered)), std::logic_error);
}

/// A store of which another thread drains what cannot be written yet.
struct Draining {
  KeptRig rig;
  History history = rig.open().history("");
  std::shared_ptr<Engine> engine = rig.rig().engine().shared_from_this();
  std::thread closer;
  template <class Close>
  explicit Draining(const Close& close) {
    rig.files().hold(FileCall::write);
    EXPECT_TRUE(write(history, 1, kSize));
    rig.files().await_held(FileCall::write, 1);
    closer = std::thread([this, close] { close(rig); });
    while (code_of(write(history, 2, kKiB)) != Errc::closed) std::this_thread::yield();
  }
};

TEST(KeptClose, ABrokenContractEndsTheDrainingAndTheStoreIsClosedAllTheSame) {
  Draining draining([](KeptRig& rig) { EXPECT_THROW(static_cast<void>(rig.rig().store().close()), std::logic_error); });
  break_contract(*draining.engine);
  draining.closer.join();
  draining.rig.files().release(FileCall::write);
  draining.rig.close();
  EXPECT_EQ(code_of(draining.engine->close()), Errc::ok) << "it was closed";
  EXPECT_EQ(code_of(draining.history.drop(1)), Errc::closed);
}

TEST(KeptClose, WhoLeavesAStoreThatBreaksMeanwhileIsToldNothing) {
  Draining draining([](KeptRig& rig) { rig.close(); });
  break_contract(*draining.engine);
  draining.rig.files().release(FileCall::write);
  draining.closer.join();
  EXPECT_EQ(code_of(draining.history.drop(1)), Errc::closed);
}

TEST(KeptClose, WhatThrowsInTheLookForTheNewestIsNotUnderWayAnyMore) {
  KeptRig rig;
  keep(rig.open(), 1);
  rig.close();
  const auto [file, offset] = rig.payload_of(1);
  rig.flip(file, offset + 5000);
  rig.setup().log = [](std::string_view line) {
    if (line.starts_with("warning: ")) throw std::bad_alloc();
  };
  Store& store = rig.open();
  EXPECT_THROW(static_cast<void>(store.latest()), std::bad_alloc);
  EXPECT_TRUE(store.close()) << "and does not wait for it";
}

TEST(KeptClose, AnInterruptEndsTheLookForTheNewest) {
  KeptRig rig;
  for (Version version : {1, 2}) keep(version == 1 ? rig.open() : rig.rig().store(), version, 3 * kSize);
  Store& store = rig.open();
  int asked = 0;
  const auto interrupted = store.latest({}, [&] { return ++asked > 0; });
  EXPECT_EQ(code_of(interrupted), Errc::timed_out);
  EXPECT_EQ(asked, 1);
  EXPECT_NE(interrupted.error().message.find("version 2"), std::string::npos) << interrupted.error().message;
  EXPECT_TRUE(rig.lines().starting("warning").empty());
  EXPECT_EQ(store.latest({}, [] { return false; }).value(), 2) << "nothing was found to be wrong with it";
}

}  // namespace
}  // namespace ebb::store
