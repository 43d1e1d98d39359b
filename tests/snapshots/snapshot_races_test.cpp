// Races that are forced: nothing drains while a program has all memory of the cache, so what a cut is owed stays owed.
#include <condition_variable>

#include "tests/doubles/fake_write_watch.hpp"
#include "tests/snapshots/support.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

// Slots have 16 places, the last two of them for writes: with both slots in use 28 zones are copied in turn.
class SnapshotRaces : public ::testing::Test {
 protected:
  void protect(planner::Time longest_wait) {
    hog_.emplace(store_, 4096 * kKiB - 16 * kKiB);
    snapshots_of(rig_, kPage, {.longest_wait = longest_wait, .piece_bytes = 16 * kPage});
    for (std::size_t zone = 0; zone < 128; ++zone) set(zone, 1);
    store_.protect(0, memory_.data(), memory_.bytes(), {kPage, Track::faults}).value();
  }
  void set(std::size_t zone, int value) { std::memset(memory_.data() + zone * kPage, value, kPage); }
  void await_full() {
    while (store_.snapshot_stats().bytes_gathered < 28 * kPage) std::this_thread::yield();
  }

  Rig rig_{Backend::uring, {.device = 4096 * kKiB, .host = 0, .disk = 0}};
  Store& store_ = rig_.store();
  Pages memory_{128 * kPage};
  std::optional<Hog> hog_;
};

constexpr planner::Time kForEver = 60'000'000'000;

TEST_F(SnapshotRaces, AWriteBetweenProtectionAndCopyIsNotInTheSnapshot) {
  protect(kForEver);
  const auto expected = memory_.copy();
  const Snapshot cut = store_.snapshot(1).value();
  await_full();
  EXPECT_FALSE(cut.done("copied"));
  EXPECT_EQ(code_of(cut.wait("copied", Seconds{0.01})), Errc::timed_out);
  set(100, 2);  // owed: duplicated, and then written
  set(101, 3);
  EXPECT_EQ(store_.snapshot_stats().duplicates, 2u);
  set(0, 4);  // copied already
  EXPECT_EQ(store_.snapshot_stats().duplicates, 2u);
  const auto later = memory_.copy();
  hog_->end();
  ASSERT_TRUE(cut.wait("ephemeral")) << cut.error()->message;
  ASSERT_TRUE(store_.snapshot(2).value().wait("ephemeral"));
  EXPECT_TRUE(stored(store_, 1, 0) == expected);
  EXPECT_TRUE(stored(store_, 2, 0) == later);
}

TEST_F(SnapshotRaces, TwoCutsDrainAtOnceAndEachIsExact) {
  protect(kForEver);
  const auto first = memory_.copy();
  const Snapshot one = store_.snapshot(1).value();
  await_full();
  set(100, 2);
  set(5, 9);
  const auto second = memory_.copy();
  const Snapshot two = store_.snapshot(2).value();
  EXPECT_FALSE(one.done("copied"));
  EXPECT_FALSE(two.done("copied"));
  std::thread writer([&] { set(100, 3), set(120, 3), set(121, 3), set(5, 3); });  // some of it waits for a place
  while (store_.snapshot_stats().faults < 3) std::this_thread::yield();
  hog_->end();
  writer.join();
  ASSERT_TRUE(one.wait("ephemeral")) << one.error()->message;
  ASSERT_TRUE(two.wait("ephemeral")) << two.error()->message;
  EXPECT_TRUE(stored(store_, 1, 0) == first);
  EXPECT_TRUE(stored(store_, 2, 0) == second);
  ASSERT_TRUE(store_.drop(1));
  EXPECT_TRUE(stored(store_, 2, 0) == second) << "it leans on a version that was dropped";
}

TEST_F(SnapshotRaces, AFullBufferBlocksAWriterForItsTimeOnlyAndTheNextSnapshotIsFull) {
  protect(200'000'000);
  const Snapshot cut = store_.snapshot(1).value();
  await_full();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t zone = 60; zone < 128; ++zone) set(zone, 2);  // the third finds no place
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited.count(), 0.15);
  EXPECT_LT(waited.count(), 10);
  hog_->end();
  const auto failed = cut.wait("ephemeral");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::timed_out) << failed.error().message;
  EXPECT_EQ(cut.error().value().code, Errc::timed_out);
  EXPECT_THROW(static_cast<void>(cut.done("copied")), BadResult);
  EXPECT_GE(store_.snapshot_stats().blocked_s, 0.15);
  EXPECT_EQ(store_.snapshot_stats().failures, 1u);
  EXPECT_FALSE(store_.info(1));
  const auto expected = memory_.copy();
  const std::uint64_t before = store_.snapshot_stats().bytes_gathered;
  const Snapshot next = store_.snapshot(1).value();
  set(3, 7);
  ASSERT_TRUE(next.wait("ephemeral")) << next.error()->message;
  EXPECT_TRUE(stored(store_, 1, 0) == expected);
  EXPECT_EQ(store_.snapshot_stats().bytes_gathered - before, memory_.bytes());
}

// What a writer holds does not matter to the thread that answers it.
TEST_F(SnapshotRaces, AWriterMayHoldAMutexThatAnotherThreadWaitsFor) {
  protect(kForEver);
  const auto expected = memory_.copy();
  const Snapshot cut = store_.snapshot(1).value();
  await_full();
  std::mutex mutex;
  std::atomic<bool> held{false};
  std::thread writer([&] {
    const std::lock_guard lock(mutex);
    held = true;
    for (std::size_t zone = 60; zone < 64; ++zone) set(zone, 2);  // the third waits for a place
  });
  std::thread other([&] {
    while (!held) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    set(64, 2);
  });
  while (store_.snapshot_stats().duplicates < 2) std::this_thread::yield();
  hog_->end();
  writer.join();
  other.join();
  ASSERT_TRUE(cut.wait("ephemeral")) << cut.error()->message;
  EXPECT_TRUE(stored(store_, 1, 0) == expected);
}

TEST_F(SnapshotRaces, ClosingFailsWhatIsInFlightInAnEphemeralStore) {
  protect(kForEver);
  const Snapshot cut = store_.snapshot(1).value();
  await_full();
  std::thread writer([&] {
    for (std::size_t zone = 60; zone < 64; ++zone) set(zone, 2);  // waits for a place
  });
  while (store_.snapshot_stats().duplicates < 2) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  std::thread closer([&] { EXPECT_TRUE(store_.close()); });
  writer.join();  // it goes on, though nothing has drained
  closer.join();
  const std::chrono::duration<double> closing = std::chrono::steady_clock::now() - start;
  EXPECT_LT(closing.count(), 5) << "it waits for room in the cache";
  EXPECT_EQ(code_of(cut.wait("copied")), Errc::closed);
  EXPECT_EQ(code_of(store_.snapshot(2)), Errc::closed);
  set(1, 9);
}

// --- with the double of write watches: faults that come late, twice or never

class LateFaults : public ::testing::Test {
 protected:
  LateFaults() {
    snapshots_of(rig_, kPage, {.watches = watches_, .piece_bytes = 16 * kPage});
    store_.protect(0, memory_.data(), memory_.bytes(), {kPage, Track::faults}).value();
  }
  using Fault = doubles::FakeWriteWatches::Fault;
  using WatchCall = doubles::WatchCall;
  std::byte* at(std::size_t zone) { return memory_.data() + zone * kPage; }
  void write(std::size_t zone, int value, Fault fault = Fault::told) {
    watches_->write_and_wait(at(zone), fault);
    std::memset(at(zone), value, kPage);
  }
  // Nobody sleeps there, soon.
  bool awake(std::byte* page) {
    for (int i = 0; i < 5000 && watches_->sleeping(page) > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return watches_->sleeping(page) == 0;
  }
  void take(Version version) {
    const auto expected = memory_.copy();
    ASSERT_TRUE(store_.snapshot(version).value().wait("ephemeral"));
    ASSERT_TRUE(stored(store_, version, 0) == expected) << "version " << version;
  }

  std::shared_ptr<doubles::FakeWriteWatches> watches_ = std::make_shared<doubles::FakeWriteWatches>();
  Rig rig_{Backend::uring, {.device = 4096 * kKiB, .host = 0, .disk = 0}};
  Store& store_ = rig_.store();
  Pages memory_{32 * kPage};
  std::optional<Hog> hog_;
};

TEST_F(LateFaults, ChangeNothingThatIsStored) {
  take(0);
  for (Version version = 1; version < 20; ++version) {
    const auto zone = static_cast<std::size_t>(version);
    EXPECT_FALSE(watches_->write(at(zone), Fault::late));  // told in the next interval; another's lets it go on
    write(zone, static_cast<int>(version), version % 2 ? Fault::doubled : Fault::told);
    take(version);
    EXPECT_TRUE(watches_->is_armed(at(zone)));
    watches_->tell_late();
    write(zone / 2, static_cast<int>(version + 100));
  }
  take(20);
}

TEST_F(LateFaults, AWriterWhoseFaultIsLostGoesOnWhenItsMemoryIsUnprotected) {
  take(0);
  ASSERT_FALSE(watches_->write(at(0), Fault::lost));
  EXPECT_EQ(watches_->sleeping(at(0)), 1u);
  ASSERT_TRUE(store_.unprotect(0));
  EXPECT_EQ(watches_->sleeping(at(0)), 0u);
}

// Memory is protected anew, because nobody knows what happened to it meanwhile, and watched by another thread.
TEST_F(LateFaults, AWatchThatFailsLetsWritersGoOnAndSnapshotsFailByNameUntilMemoryIsProtectedAnew) {
  Pages other(4 * kPage);
  store_.protect(1, other.data(), other.bytes(), {kPage, Track::faults}).value();
  take(0);
  ASSERT_FALSE(watches_->write(at(0), Fault::lost));
  watches_->faults().fail_nth(WatchCall::next, 1, EIO);
  watches_->write(at(1));
  EXPECT_TRUE(awake(at(0)));
  const auto refused = [&] {
    const auto cut = store_.snapshot(1);
    return !cut && cut.error().code == Errc::lost;
  };
  EXPECT_TRUE(refused());
  ASSERT_TRUE(store_.unprotect(0));
  store_.protect(0, memory_.data(), memory_.bytes(), {kPage, Track::faults}).value();
  EXPECT_TRUE(refused()) << "the other region is not watched yet";
  ASSERT_TRUE(store_.unprotect(1));
  take(1);
  EXPECT_TRUE(watches_->is_armed(at(1)));
  watches_->write(at(1));
  ASSERT_TRUE(awake(at(1)));
  take(2);
}

TEST_F(LateFaults, MemoryThatCannotBeArmedIsDisarmedEvenAfterAnotherFailure) {
  Pages other(4 * kPage);
  store_.protect(1, other.data(), other.bytes(), {kPage, Track::faults}).value();
  take(0);
  for (int i = 0; i < 2; ++i) {
    watches_->faults().fail_nth(WatchCall::arm, 2, ENOMEM);
    EXPECT_EQ(code_of(store_.snapshot(1, {.full = true})), Errc::out_of_memory);
    EXPECT_FALSE(watches_->is_armed(at(0)));
  }
  take(1);
}

// As with mprotect, where each run of disarmed pages takes two of the mappings that the kernel allows.
TEST_F(LateFaults, AWriterGoesOnWhenItsPageCannotBeDisarmedAndTheNextSnapshotIsFull) {
  hog_.emplace(store_, 4096 * kKiB - 16 * kKiB);
  const Snapshot cut = store_.snapshot(1).value();
  watches_->faults().fail_nth(WatchCall::disarm, 1, ENOMEM);
  const std::size_t copied_last = 31;
  watches_->write(at(copied_last));
  ASSERT_TRUE(awake(at(copied_last)));
  EXPECT_FALSE(watches_->is_armed(at(copied_last - 1)));
  hog_->end();
  const auto failed = cut.wait("ephemeral");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::out_of_memory) << failed.error().message;
  const std::uint64_t before = store_.snapshot_stats().bytes_gathered;
  take(2);
  EXPECT_EQ(store_.snapshot_stats().bytes_gathered - before, memory_.bytes());
}

}  // namespace
}  // namespace ebb::snapshots
