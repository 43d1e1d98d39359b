// What is refused by name, and memory that goes away.
#include <sys/wait.h>

#include "tests/snapshots/support.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

class SnapshotErrors : public ::testing::Test {
 protected:
  Rig rig_{Backend::uring, {.device = 8192 * kKiB, .host = 0, .disk = 0}};
  Store& store_ = rig_.store();
  Pages memory_{64 * kPage};
};

TEST_F(SnapshotErrors, WrongProtectionsAreRefused) {
  const auto protect = [&](std::uint32_t region, void* memory, std::size_t bytes, std::uint64_t zone) {
    return code_of(store_.protect(region, memory, bytes, {.zone = zone}));
  };
  EXPECT_EQ(code_of(store_.snapshot(1)), Errc::invalid_argument) << "nothing is protected";
  EXPECT_EQ(code_of(store_.unprotect(1)), Errc::invalid_argument);
  for (const std::uint64_t zone : {0ull, 2048ull, 5000ull, 32ull << 20})
    EXPECT_EQ(protect(0, memory_.data(), memory_.bytes(), zone), Errc::invalid_argument) << zone;
  EXPECT_EQ(protect(0, memory_.data(), 8 * kPage, kPage), Errc::ok);
  std::byte* const next = memory_.data() + 8 * kPage;
  EXPECT_EQ(protect(1, next, kPage, 2 * kPage), Errc::invalid_argument) << "another zone";
  EXPECT_EQ(protect(0, next, kPage, kPage), Errc::invalid_argument) << "a region twice";
  EXPECT_EQ(protect(1, next - 1, kPage, kPage), Errc::invalid_argument) << "memory twice";
  EXPECT_EQ(protect(0xFFFFFFFE, next, kPage, kPage), Errc::invalid_argument) << "the store's own region";
  EXPECT_EQ(protect(1, nullptr, kPage, kPage), Errc::invalid_argument);
  Pages gone(4 * kPage);
  std::byte* const at = gone.data();
  gone.unmap();
  EXPECT_EQ(protect(1, at, 4 * kPage, kPage), Errc::invalid_argument) << "not mapped";
  EXPECT_EQ(code_of(store_.touch(0, 8 * kPage, 1)), Errc::invalid_argument);
  EXPECT_EQ(code_of(store_.touch(5, 0, 1)), Errc::invalid_argument);
  EXPECT_EQ(store_.snapshot_stats().zones, 8u);
}

TEST_F(SnapshotErrors, AVersionExistsOnce) {
  store_.protect(0, memory_.data(), memory_.bytes(), {.zone = kPage}).value();
  ASSERT_TRUE(write(store_, 5, 100));
  EXPECT_EQ(code_of(store_.snapshot(5)), Errc::version_exists);
  const Snapshot cut = store_.snapshot(6).value();
  EXPECT_EQ(cut.version(), 6);
  EXPECT_EQ(code_of(store_.snapshot(6)), Errc::version_exists) << "in flight, or written";
  ASSERT_TRUE(cut.wait("ephemeral"));
  EXPECT_EQ(code_of(store_.snapshot(6)), Errc::version_exists);
  ASSERT_TRUE(store_.drop(6));
  ASSERT_TRUE(store_.snapshot(6).value().wait("ephemeral"));
  EXPECT_EQ(code_of(cut.wait("no level")), Errc::invalid_argument);
  EXPECT_THROW(static_cast<void>(cut.done("no level")), BadResult);
  EXPECT_EQ(code_of(Snapshot().wait()), Errc::closed);
}

TEST_F(SnapshotErrors, AVersionInFlightIsNobodyElses) {
  store_.protect(0, memory_.data(), memory_.bytes(), {.zone = kPage, .track = Track::declared}).value();
  Snapshot cut;
  {
    Hog hog(store_, 8192 * kKiB);
    std::thread taking([&] { cut = store_.snapshot(6).value(); });
    while (store_.snapshot_stats().snapshots == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(code_of(write(store_, 6, 100)), Errc::version_exists);
    const Source region{0, nullptr, 100};
    EXPECT_EQ(code_of(store_.reserve(6, {&region, 1})), Errc::version_exists);
    hog.end();
    taking.join();
  }
  ASSERT_TRUE(write(store_, 7, 100));
  EXPECT_TRUE(cut.wait("ephemeral"));
  EXPECT_TRUE(stored(store_, 6, 0) == memory_.copy());
}

TEST(InterruptedSnapshots, AreNotThere) {
  for (const Track track : {Track::declared, Track::everything, Track::faults}) {
    SCOPED_TRACE(static_cast<int>(track));
    Rig rig(Backend::uring, {.device = 8192 * kKiB, .host = 0, .disk = 0});
    Store& store = rig.store();
    Pages memory(256 * kPage);  // as much as the buffer holds
    store.protect(0, memory.data(), memory.bytes(), {.zone = kPage, .track = track}).value();
    Hog hog(store, 8192 * kKiB);
    Version version = 0;  // of those that do not block, until there are too many
    auto taken = store.snapshot(version, {.full = true, .interrupted = [] { return true; }});
    while (taken && version < 20) taken = store.snapshot(++version, {.full = true, .interrupted = [] { return true; }});
    ASSERT_FALSE(taken);
    EXPECT_EQ(code_of(taken), Errc::timed_out);
    EXPECT_NE(taken.error().message.find("interrupted"), std::string::npos) << taken.error().message;
    if (version > 0) {  // others are in flight, and go on
      EXPECT_EQ(code_of(store.unprotect(0, [] { return true; })), Errc::timed_out);
    }
    hog.end();
    memory.data()[5] = std::byte{7};
    const auto now = memory.copy();
    ASSERT_TRUE(store.snapshot(100).value().wait("ephemeral"));
    EXPECT_EQ(code_of(store.info(version)), Errc::unknown_version);
    EXPECT_TRUE(stored(store, 100, 0) == now);
  }
}

TEST_F(SnapshotErrors, SmallMemoryHasOnlyEdges) {
  std::vector<std::byte> few(100, std::byte{7});
  store_.protect(0, few.data(), few.size(), {.zone = kPage}).value();
  ASSERT_TRUE(store_.snapshot(1).value().wait("ephemeral"));
  const auto before = few;
  std::ranges::fill(few, std::byte{8});
  ASSERT_TRUE(store_.snapshot(2).value().wait("ephemeral"));
  EXPECT_EQ(stored(store_, 1, 0), before);
  EXPECT_EQ(stored(store_, 2, 0), few);
}

class GoneMemory : public SnapshotErrors, public ::testing::WithParamInterface<Track> {};
INSTANTIATE_TEST_SUITE_P(Tracks, GoneMemory,
                         ::testing::Values(Track::faults, Track::scan, Track::digest, Track::declared,
                                           Track::everything));

TEST_P(GoneMemory, IsAnErrorUntilItIsUnprotected) {
  store_.protect(0, memory_.data(), memory_.bytes(), {kPage, GetParam()}).value();
  Pages other(8 * kPage);
  store_.protect(1, other.data(), other.bytes(), {kPage, GetParam()}).value();
  const auto expected = memory_.copy();
  const Snapshot cut = store_.snapshot(1).value();
  ASSERT_TRUE(cut.wait("copied"));
  memory_.unmap();
  ASSERT_TRUE(cut.wait("ephemeral")) << "it no longer depended on memory";
  if (GetParam() == Track::declared) store_.touch(0, 0, kPage).value();
  for (const Version version : {2, 3}) {
    const auto failed = store_.snapshot(version);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Errc::lost) << failed.error().message;
    EXPECT_NE(failed.error().message.find("region 0"), std::string::npos) << failed.error().message;
  }
  ASSERT_TRUE(store_.unprotect(0));
  std::memset(other.data(), 5, other.bytes());
  ASSERT_TRUE(store_.snapshot(4).value().wait("ephemeral"));
  EXPECT_TRUE(stored(store_, 1, 0) == expected);
  EXPECT_TRUE(stored(store_, 4, 1) == other.copy());
}

TEST_F(SnapshotErrors, MemoryThatIsDiscardedOrMovedIsAnError) {
  for (const bool moved : {false, true}) {
    Pages pages(16 * kPage);
    std::memset(pages.data(), 1, pages.bytes());
    store_.protect(2, pages.data(), pages.bytes(), {kPage, Track::faults}).value();
    ASSERT_TRUE(store_.snapshot(moved).value().wait("copied"));
    Pages place(16 * kPage);
    if (moved) {
      void* const to =
          ::mremap(pages.data(), pages.bytes(), pages.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, place.data());
      ASSERT_EQ(to, place.data());
    } else {
      ASSERT_EQ(::madvise(pages.data() + kPage, kPage, MADV_DONTNEED), 0);
    }
    EXPECT_EQ(code_of(store_.snapshot(10)), Errc::lost);
    ASSERT_TRUE(store_.unprotect(2));
  }
}

TEST_F(SnapshotErrors, AForkedChildIsRefused) {
  store_.protect(0, memory_.data(), memory_.bytes(), {kPage, Track::faults}).value();
  const Snapshot cut = store_.snapshot(1).value();
  const pid_t child = ::fork();
  if (child == 0) {
    memory_.data()[0] = std::byte{1};  // its own
    const bool refused =
        code_of(store_.snapshot(2)) == Errc::unsupported && code_of(cut.wait("copied")) == Errc::unsupported;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(cut.wait("ephemeral"));
}

}  // namespace
}  // namespace ebb::snapshots
