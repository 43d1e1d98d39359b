// Caches whose memory ends earlier than was asked for.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sizes.hpp"
#include "support.hpp"
#include "tests/doubles/no_files.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// What a store said, by whom.
class Log {
 public:
  void listen(Rig& rig) {
    rig.setup().log = [this](std::string_view line) {
      std::lock_guard lock(mutex_);
      said_.emplace_back(line);
    };
  }
  std::ptrdiff_t lines_of(const std::string& who) {
    std::lock_guard lock(mutex_);
    const std::string begin = "warning: " + who + ":";  // heard by who asked for no log, too
    return std::count_if(said_.begin(), said_.end(), [&](const std::string& line) { return line.starts_with(begin); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;
};

/// A control group that has so much memory left, and after so many questions less by a page with each.
/// Thread safety: every method may be called from any thread.
class LittleMemory final : public doubles::NoFiles {
 public:
  explicit LittleMemory(std::uint64_t left, int questions = 1 << 30) : left_(left), questions_(questions) {}
  os::SysResult open_read(const Path& path) noexcept override {
    if (path == "/proc/self/cgroup") return os::SysResult::of(1);
    if (path == "/sys/fs/cgroup/memory.max") return os::SysResult::of(2);
    return os::SysResult::failed(ENOENT);
  }
  os::SysResult read(int fd, void* memory, std::size_t, std::uint64_t offset) noexcept override {
    if (offset > 0) return os::SysResult::of(0);
    if (fd == 2 && --questions_ < 0) left_ -= 4096;
    const std::string text = fd == 1 ? "0::/\n" : std::to_string(left_.load()) + "\n";
    std::memcpy(memory, text.data(), text.size());
    return os::SysResult::of(static_cast<std::int64_t>(text.size()));
  }
  os::SysResult close(int) noexcept override { return os::SysResult::of(0); }

 private:
  std::atomic<std::uint64_t> left_;
  std::atomic<int> questions_;
};

TEST(MemoryEnds, ADeviceCacheThatIsNotMappedToItsEndIsUsedAsFarAsItGoes) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Rig rig(Backend::gpu, {.device = 8 * kSize, .host = 8 * kSize}, seed);
    rig.setup().map_piece = kSize;
    Log log;
    log.listen(rig);
    rig.device().limit_mapped(2 * kSize);
    Store& store = rig.store();
    const StreamHandle on = rig.device().create_stream().value();
    std::vector<std::vector<std::byte>> fields;
    for (Version v = 0; v < 30; ++v) {
      fields.push_back(bytes_of(v, kSize));
      const std::vector<Source> sources = {{0, fields.back().data(), kSize}};
      ASSERT_TRUE(store.checkpoint(v, sources, {.timeout = Seconds(60), .stream = on})) << v;
    }
    for (Version v = 30; v-- > 0;) expect_restored(store, v, kSize);
    const ArenaStats arena = store.stats().tiers.at(0).arena;
    EXPECT_EQ(arena.limit, 2 * kSize);
    EXPECT_NE(arena.trouble, "");
    store.close().value();
    EXPECT_EQ(log.lines_of("device cache"), 1);
  }
}

TEST(MemoryEnds, AStoreWhereLittleMemoryIsLeftKeepsItsCaches) {
  Rig rig(Backend::uring, {.device = 4 * kMiB, .host = 8 * kMiB, .disk = 0, .chunk = kMiB});
  rig.seams().files = std::make_shared<LittleMemory>(200 * kMiB);
  Log log;
  log.listen(rig);
  Store& store = rig.store();
  for (;;) {  // until all has been touched, or nothing will be
    const auto tiers = store.stats().tiers;
    const auto settled = [](const TierStats& tier) {
      return tier.arena.touched == tier.capacity || !tier.arena.trouble.empty();
    };
    if (std::ranges::all_of(tiers, settled)) break;
    std::this_thread::yield();
  }
  for (Version v = 0; v < 12; ++v) ASSERT_TRUE(write(store, v, kMiB, {.timeout = Seconds(60)})) << v;
  for (Version v = 12; v-- > 0;) expect_restored(store, v, kMiB);
  EXPECT_EQ(log.lines_of("device cache") + log.lines_of("host cache"), 0) << "there is enough for them";
}

TEST(MemoryEnds, AHostCacheWhoseMemoryRunsOutWhileItIsTouchedIsUsedAsFarAsItGoes) {
  Rig rig(Backend::gpu, {.device = 2 * kSize, .host = 8 * kSize, .disk = 0});
  rig.seams().files = std::make_shared<LittleMemory>(4 * kSize, 1);  // of which a quarter is kept
  Log log;
  log.listen(rig);
  Store& store = rig.store();
  for (Version v = 0; v < 4; ++v) ASSERT_TRUE(write(store, v, kSize, {.timeout = Seconds(60)})) << v;
  while (store.stats().tiers.at(1).arena.trouble.empty()) std::this_thread::yield();  // all four are to be flushed
  for (Version v = 4; v-- > 0;) expect_restored(store, v, kSize);
  const ArenaStats arena = store.stats().tiers.at(1).arena;
  EXPECT_GE(arena.limit, 2 * kSize);
  EXPECT_LE(arena.limit, 3 * kSize);
  EXPECT_NE(arena.trouble, "");
  store.close().value();
  EXPECT_EQ(log.lines_of("host cache"), 1);
}

// Taken at once it is touched to its end, where the kernel ends the process.
TEST(MemoryEnds, ACacheThatIsTakenAtOnceIsRefusedWhereItsControlGroupHasLess) {
  for (const Backend backend : {Backend::uring, Backend::gpu}) {
    Rig rig(backend, {.device = 2 * kSize, .host = 8 * kSize, .disk = 0});
    rig.seams().files = std::make_shared<LittleMemory>(4 * kSize);
    rig.setup().host_arena = HostArena::direct;
    const auto refused = Engine::open(rig.seams(), rig.setup());
    ASSERT_EQ(code_of(refused), Errc::out_of_memory);
    EXPECT_NE(refused.error().message.find("the host cache of"), std::string::npos) << refused.error().message;
  }
}

TEST(MemoryEnds, CachesThatAreTakenAtOnceCountTogetherInTheirControlGroupAndGpuMemoryDoesNot) {
  for (const Backend backend : {Backend::uring, Backend::gpu}) {
    Rig rig(backend, {.device = 4 * kSize, .host = 4 * kSize, .disk = 0});
    rig.seams().files = std::make_shared<LittleMemory>(6 * kSize);
    rig.setup().device_arena = DeviceArena::direct;
    rig.setup().host_arena = HostArena::direct;
    EXPECT_EQ(code_of(Engine::open(rig.seams(), rig.setup())),
              backend == Backend::gpu ? Errc::ok : Errc::out_of_memory);
  }
}

TEST(MemoryEnds, AHostCacheThatCannotBeRegisteredToItsEndIsUsedAsItIs) {
  Rig rig(Backend::gpu, {.device = 2 * kSize, .host = 8 * kSize, .disk = 0});
  Log log;
  log.listen(rig);
  rig.device().limit_pinned(3 * kSize);
  Store& store = rig.store();
  for (Version v = 0; v < 9; ++v) ASSERT_TRUE(write(store, v, kSize, {.timeout = Seconds(60)})) << v;
  for (Version v = 9; v-- > 0;) expect_restored(store, v, kSize);
  const ArenaStats arena = store.stats().tiers.at(1).arena;
  EXPECT_EQ(arena.limit, 8 * kSize);
  EXPECT_EQ(arena.pinned, 3 * kSize);
  EXPECT_NE(arena.trouble.find("registered"), std::string::npos) << arena.trouble;
  store.close().value();
  EXPECT_EQ(log.lines_of("host cache"), 1);
}

TEST(MemoryEnds, AStagingRingThatCannotBeRegisteredIsUsedAsItIs) {
  Rig rig(Backend::gpu, {.device = 2 * kSize, .host = 0});
  Log log;
  log.listen(rig);
  rig.device().limit_pinned(0);
  Store& store = rig.store();
  for (Version v = 0; v < 8; ++v) ASSERT_TRUE(write(store, v, kSize, {.timeout = Seconds(60)})) << v;
  for (Version v = 8; v-- > 0;) expect_restored(store, v, kSize);
  EXPECT_NE(store.stats().tiers.at(1).arena.trouble.find("registered"), std::string::npos);
  store.close().value();
  EXPECT_EQ(log.lines_of("staging ring"), 1);
}

TEST(MemoryEnds, AStagingRingThatIsNotTouchedIsUsedAsItIs) {
  Rig rig(Backend::gpu, {.device = 2 * kSize, .host = 0, .disk = 0});
  rig.setup().machine.tiers.push_back({"local", planner::Medium::file, 64 * kSize, 4096});
  planner::connect(rig.setup().machine, 4);
  Log log;
  log.listen(rig);
  auto tiers = [&] {
    options::Seams seams = rig.seams();
    seams.files = std::make_shared<LittleMemory>(0);
    return Tiers::create(seams, rig.setup(), [] {});
  }();
  ASSERT_TRUE(tiers) << tiers.error().message;
  const planner::Place slot{{planner::Endpoint::ring, planner::kHost}, 0};
  while ((*tiers)->use_of(slot, 4096) == Tiers::Usable::later) std::this_thread::yield();
  EXPECT_EQ((*tiers)->use_of(slot, 4096), Tiers::Usable::now) << "what passes it has no other way";
  std::memset((*tiers)->at(slot), 1, 4096);
  (*tiers)->stop();
  EXPECT_EQ(log.lines_of("staging ring"), 1);
}

}  // namespace
}  // namespace ebb::store
