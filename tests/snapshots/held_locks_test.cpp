// What a writer holds while it faults does not matter, and the store's own writes are writes as well.
#include <array>
#include <fstream>
#include <malloc.h>

#include "tests/snapshots/support.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kOwnMalloc = false;
#else
constexpr bool kOwnMalloc = true;
#endif

namespace ebb::snapshots {
namespace {

using namespace testing_support;

// All threads share one arena, and malloc keeps its books in the memory that it gives out, with its lock held.
TEST(HeldLocks, AWriterMayHoldTheLockOfMalloc) {
  if (!kOwnMalloc) GTEST_SKIP() << "a sanitizer's malloc";
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Rig rig(Backend::uring, {.device = 64 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  constexpr std::size_t kBytes = 4 * kMiB;
  for (Version version = 0; version < 20; ++version) {
    auto* const block = static_cast<std::byte*>(std::malloc(kBytes));
    const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(block) + kPage - 1) / kPage * kPage;
    const std::span<std::byte> inside(reinterpret_cast<std::byte*>(first), kBytes - 2 * kPage);
    store.protect(0, inside.data(), inside.size(), {kPage, Track::faults}).value();
    std::memset(inside.data(), static_cast<int>(version) + 1, inside.size());
    const Snapshot cut = store.snapshot(version).value();
    std::free(block);
    // Until malloc divides that memory.
    std::array<void*, 200> parts{};
    const auto is_inside = [&](void* part) { return part > inside.data() && part < inside.data() + inside.size(); };
    std::size_t count = 0;
    while (count < parts.size() && (count == 0 || !is_inside(parts[count - 1])))
      parts[count++] = std::malloc(kBytes / 8);
    EXPECT_GE(store.snapshot_stats().faults, 1u);
    for (void* const part : parts) std::free(part);
    ASSERT_TRUE(cut.wait("ephemeral")) << cut.error()->message;
    store.unprotect(0).value();
    const std::vector<std::byte> found = stored(store, version, 0);
    ASSERT_EQ(found.size(), inside.size());
    EXPECT_TRUE(std::ranges::all_of(found, [&](std::byte b) { return b == static_cast<std::byte>(version + 1); }));
    ASSERT_TRUE(store.drop(version));
  }
}

// What the cut is owed is duplicated before the store's own copy overwrites it.
TEST(HeldLocks, ARestoreIntoProtectedMemoryWhileACutDrainsIsAWriteLikeAnother) {
  Rig rig(Backend::uring, {.device = 4096 * kKiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  History other = store.history("other");
  const std::vector<std::byte> ones(2 * kPage, std::byte{1}), twos(2 * kPage, std::byte{2});
  other.checkpoint(1, {{0, ones.data(), ones.size()}}).value();
  other.checkpoint(2, {{0, twos.data(), twos.size()}}).value();
  Hog hog(store, 4096 * kKiB - 48 * kKiB);
  snapshots_of(rig, kPage, {.longest_wait = 60'000'000'000, .piece_bytes = 16 * kPage});
  Pages memory(64 * kPage);
  std::memset(memory.data(), 7, memory.bytes());
  store.protect(0, memory.data(), memory.bytes(), {kPage, Track::faults}).value();
  const auto expected = memory.copy();
  const Snapshot cut = store.snapshot(1).value();
  while (store.snapshot_stats().bytes_gathered < 28 * kPage) std::this_thread::yield();
  other.restore(1, {{0, memory.data() + 60 * kPage, ones.size()}}, {.keep = true}).value();
  EXPECT_EQ(store.snapshot_stats().duplicates, 2u);
  EXPECT_EQ(memory.data()[61 * kPage], std::byte{1});
  std::vector<std::byte> aside(2 * kPage);
  const Future restored =
      other.restore_async(2, std::vector<Target>{{0, memory.data() + 62 * kPage, twos.size()}}, {.keep = true}).value();
  other.restore(1, {{0, aside.data(), aside.size()}}, {.keep = true}).value();  // the store's mutex is free
  EXPECT_FALSE(cut.done("copied"));
  hog.end();
  ASSERT_TRUE(restored.wait());
  ASSERT_TRUE(cut.wait("ephemeral")) << cut.error()->message;
  EXPECT_TRUE(stored(store, 1, 0) == expected);
  const auto later = memory.copy();
  EXPECT_EQ(later[63 * kPage], std::byte{2});
  ASSERT_TRUE(store.snapshot(2).value().wait("ephemeral"));
  EXPECT_TRUE(stored(store, 2, 0) == later);
}

// Where userfaultfd is forbidden, a disarmed page in the middle of memory takes two of the mappings that a process may
// have.
TEST(NoMappings, AWriterGoesOnAndTheNextSnapshotIsFull) {
  if (!kOwnMalloc) GTEST_SKIP() << "a sanitizer needs mappings itself";
  struct OnlyMprotect final : os::WriteWatches {
    std::vector<os::WatchAbility> abilities() override { return {{os::WatchForm::mprotect, true, true}}; }
    Result<std::unique_ptr<os::WriteWatch>> open(os::WatchForm form) override {
      if (form != os::WatchForm::mprotect) return Error{Errc::unsupported, "forbidden"};
      return os::SystemWriteWatches().open(form);
    }
  };
  std::size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most == 0 || most > 300'000) GTEST_SKIP() << "the kernel allows " << most << " mappings";
  Rig rig(Backend::uring, {.device = 8 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  snapshots_of(rig, kPage, {.watches = std::make_shared<OnlyMprotect>(), .piece_bytes = 16 * kPage});
  Pages memory(64 * kPage);
  store.protect(0, memory.data(), memory.bytes(), {kPage, Track::faults}).value();
  ASSERT_TRUE(store.snapshot(0).value().wait("ephemeral"));
  {
    const Pages many(2 * most * kPage);
    for (std::size_t i = 0; ::mprotect(many.data() + 2 * i * kPage, kPage, PROT_NONE) == 0; ++i) continue;
    memory.data()[32 * kPage] = std::byte{1};
    memory.data()[40 * kPage] = std::byte{2};
  }
  const std::uint64_t before = store.snapshot_stats().bytes_gathered;
  const auto expected = memory.copy();
  ASSERT_TRUE(store.snapshot(1).value().wait("ephemeral"));
  EXPECT_EQ(store.snapshot_stats().bytes_gathered - before, memory.bytes());
  EXPECT_TRUE(stored(store, 1, 0) == expected);
}

}  // namespace
}  // namespace ebb::snapshots
