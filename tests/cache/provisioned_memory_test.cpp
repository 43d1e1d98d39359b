// How an arena comes to be, what it takes for that, and what goes wrong with it.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>

#include "cache/tier_memory.hpp"
#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::memory {
namespace {

using platform::testing::FakeDevice;

// Pieces of one page, so that a little memory has many.
policy::ProvisionSpec pages() {
  policy::ProvisionSpec spec;
  spec.granule = spec.touch_piece = spec.first_piece = spec.largest_piece = 4096;
  spec.least_lead = 0;
  spec.most_lead = 0;
  spec.pin_deadline = policy::kNever;  // a thread that pins may be late on a busy machine
  return spec;
}

// As TierMemory::host() has it, but that nothing is used before it is pinned.
std::unique_ptr<TierMemory> incremental(platform::Device& device, std::size_t bytes, Watch& watch) {
  policy::ProvisionSpec spec;
  spec.touchers = 1;
  spec.pin_deadline = policy::kNever;
  return TierMemory::growing(device, bytes, "incremental", spec, watch.options()).value();
}

std::unique_ptr<TierMemory> grow(platform::Device& device, std::size_t bytes, Watch& watch,
                                 policy::ProvisionSpec spec = pages()) {
  return TierMemory::growing(device, bytes, "test", spec, watch.options()).value();
}

// A field of /proc/self/smaps, in bytes, of the mappings that lie within a range.
std::size_t smaps(const TierMemory& arena, const std::string& field) {
  const auto first = reinterpret_cast<std::uintptr_t>(arena.data()), last = first + arena.size();
  std::ifstream file("/proc/self/smaps");
  std::size_t sum = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream header(line);
    if (header >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin < last && end > first;
    } else if (inside && line.starts_with(field + ":")) {
      sum += std::stoull(line.substr(field.size() + 1)) * 1024;
    }
  }
  return sum;
}

TEST(ArenaGrowing, takes_little_more_memory_than_is_wanted) {
  FakeDevice device(discrete());
  Watch watch;
  const auto arena = incremental(device, 1024 * kMiB, watch);
  EXPECT_LE(smaps(*arena, "Rss"), 40 * kMiB);
  // Eight checkpoints of 8 MiB.
  for (std::size_t end = 8 * kMiB; end <= 64 * kMiB; end += 8 * kMiB) {
    arena->produced(8 * kMiB);
    arena->want(end);
    watch.until_ready(*arena, end);
  }
  arena->stop();
  EXPECT_GE(smaps(*arena, "Rss"), 64 * kMiB);
  // 64 wanted, at most 256 ahead (32 in truth, unless the machine is so slow that touching hardly follows), one piece.
  EXPECT_LE(smaps(*arena, "Rss"), (64 + 256 + 64) * kMiB);
  const MemoryReport report = arena->report();
  EXPECT_EQ(smaps(*arena, "Rss"), report.touched);
  EXPECT_EQ(report.pinned, device.pinned());
  EXPECT_LE(report.pinned, report.touched);
  EXPECT_GE(report.pinned, 64 * kMiB);
}

TEST(ArenaGrowing, ordinary_memory_is_ready_at_once_and_touched_ahead) {
  const auto device = platform::make_host_device();
  Watch watch;
  const auto arena = TierMemory::host(*device, 1024 * kMiB, HostStrategy::incremental, watch.options()).value();
  EXPECT_EQ(arena->ready(), 1024 * kMiB);
  arena->data()[arena->size() - 1] = std::byte{1};
  while (arena->report().touched < 32 * kMiB) std::this_thread::yield();
  arena->stop();
  EXPECT_LE(smaps(*arena, "Rss"), 36 * kMiB);
  EXPECT_EQ(arena->report().pinned, 0u);
  int parts = 0;
  arena->for_each_part(0, arena->size(), [&](std::size_t, std::size_t) { ++parts; });
  EXPECT_EQ(parts, 1);
}

TEST(ArenaGrowing, direct_has_all_of_it) {
  const auto device = platform::make_host_device();
  const auto arena = TierMemory::host(*device, 16 * kMiB, HostStrategy::direct).value();
  EXPECT_EQ(smaps(*arena, "Rss"), 16 * kMiB);
  EXPECT_EQ(arena->report().touched, 16 * kMiB);
  EXPECT_EQ(arena->report().strategy, "direct");
}

TEST(ArenaGrowing, parts_end_at_the_borders_of_what_is_pinned) {
  FakeDevice device(discrete());
  Watch watch;
  const auto arena = grow(device, 64 << 10, watch);
  arena->want(64 << 10);
  watch.until_ready(*arena, 64 << 10);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  arena->for_each_part(100, 10'000, [&](std::size_t at, std::size_t bytes) { parts.emplace_back(at, bytes); });
  EXPECT_EQ(parts, (std::vector<std::pair<std::size_t, std::size_t>>{{100, 3996}, {4096, 4096}, {8192, 1908}}));
  arena->for_each_part(4096, 0, [&](std::size_t, std::size_t) { ADD_FAILURE(); });
}

TEST(ArenaGrowing, what_is_pinned_and_what_is_not_have_a_border_too) {
  FakeDevice device(discrete());
  device.limit_pinned(2 * 4096);
  Watch watch;
  const auto arena = grow(device, 64 << 10, watch);
  arena->want(64 << 10);
  watch.until_ready(*arena, 64 << 10);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  arena->for_each_part(0, 64 << 10, [&](std::size_t at, std::size_t bytes) { parts.emplace_back(at, bytes); });
  EXPECT_EQ(parts,
            (std::vector<std::pair<std::size_t, std::size_t>>{{0, 4096}, {4096, 4096}, {8192, (64 << 10) - 8192}}));
  watch.until_trouble();
  EXPECT_EQ(watch.troubles().size(), 1u);
  EXPECT_NE(watch.troubles().at(0).find("registered"), std::string::npos) << watch.troubles()[0];
  EXPECT_EQ(arena->report().trouble, watch.troubles()[0]);
  EXPECT_EQ(arena->report().pinned, 2u * 4096);
  EXPECT_EQ(device.pinned(), 2u * 4096);
}

TEST(ArenaGrowing, a_registration_that_fails_once_is_no_trouble) {
  FakeDevice device(discrete());
  device.fail_nth_pin(3);
  Watch watch;
  policy::ProvisionSpec spec = pages();
  spec.first_piece = spec.largest_piece = 16 << 10;
  const auto arena = grow(device, 256 << 10, watch, spec);
  arena->want(256 << 10);
  watch.until_ready(*arena, 256 << 10);
  EXPECT_TRUE(watch.troubles().empty());
  EXPECT_EQ(device.pinned(), 256u << 10);
}

TEST(ArenaGrowing, memory_that_runs_out_makes_it_smaller) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  std::atomic<std::byte*> last{nullptr};
  options.touch = [&](std::byte* memory, std::size_t bytes) -> Result<void> {
    while (last.load() == nullptr) std::this_thread::yield();  // where it begins is known below
    if (memory + bytes > last.load()) return Error{Errc::out_of_memory, "none left"};
    return platform::populate(memory, bytes);
  };
  const auto arena = TierMemory::growing(device, 1024 << 10, "test", pages(), std::move(options)).value();
  last = arena->data() + (32 << 10);
  arena->want(1024 << 10);
  watch.until([&] { return arena->limit() < arena->size() && arena->ready() == arena->limit(); });
  EXPECT_EQ(arena->limit(), 32u << 10);
  watch.until_trouble();
  arena->stop();
  ASSERT_EQ(watch.troubles().size(), 1u);
  EXPECT_EQ(watch.troubles()[0], "32768 of 1048576 bytes can be had: none left");
  EXPECT_EQ(arena->report().limit, 32u << 10);
}

TEST(ArenaGrowing, memory_that_runs_out_at_once_leaves_nothing) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  options.touch = [](std::byte*, std::size_t) -> Result<void> { return Error{Errc::out_of_memory, "none left"}; };
  const auto arena = TierMemory::growing(device, 1024 << 10, "test", pages(), std::move(options)).value();
  arena->want(1);
  watch.until([&] { return arena->limit() == 0 && !arena->report().trouble.empty(); });
  EXPECT_EQ(arena->ready(), 0u);
}

// Its copies would fault the pages in, at the end of a control group's memory.
TEST(ArenaGrowing, ordinary_memory_ends_before_what_there_is_no_memory_for) {
  const auto device = platform::make_host_device();
  Watch watch;
  std::promise<void> over;
  std::vector<std::size_t> asked;
  MemoryOptions options = watch.options();
  options.touch = [held = over.get_future().share()](std::byte* memory, std::size_t bytes) {
    held.wait();
    return platform::populate(memory, bytes);
  };
  options.left = [&](std::size_t bytes) -> Result<void> {
    asked.push_back(bytes);
    if (bytes > 6 << 20) return Error{Errc::out_of_memory, "none left"};
    return {};
  };
  const auto arena = TierMemory::host(*device, 16 << 20, HostStrategy::incremental, std::move(options)).value();
  arena->want(4 << 20);
  EXPECT_EQ(arena->limit(), arena->size());
  arena->want(8 << 20);
  EXPECT_EQ(arena->limit(), 4u << 20);
  EXPECT_EQ(arena->ready(), 4u << 20);
  EXPECT_EQ(asked, (std::vector<std::size_t>{4 << 20, 8 << 20}));
  over.set_value();
  watch.until_trouble();
  EXPECT_EQ(watch.troubles()[0], "4194304 of 16777216 bytes can be had: none left");
}

TEST(ArenaGrowing, rests_end_though_all_who_touch_are_at_it) {
  FakeDevice device(discrete());
  Watch watch;
  std::atomic<int> touches{0};
  std::promise<void> over;
  MemoryOptions options = watch.options();
  options.touch = [&, held = over.get_future().share()](std::byte* memory, std::size_t bytes) {
    if (++touches > 8) held.wait();
    return platform::populate(memory, bytes);
  };
  policy::ProvisionSpec spec = pages();
  spec.touchers = 1;
  spec.rest_after = 0;  // after each registration
  spec.rest = 1'000'000;
  const auto arena = TierMemory::growing(device, 64 << 10, "test", spec, std::move(options)).value();
  arena->want(64 << 10);
  watch.until_ready(*arena, 8 * 4096);
  over.set_value();
  watch.until_ready(*arena, 64 << 10);
}

TEST(ArenaGrowing, waits_for_its_turn_and_gives_it_back) {
  FakeDevice device(discrete());
  Watch watch;
  ManualTurn::Shared turns;
  turns.set_open(false);
  MemoryOptions options = watch.options();
  options.turn = std::make_unique<ManualTurn>(turns);
  policy::ProvisionSpec spec = pages();
  const auto arena = TierMemory::growing(device, 64 << 10, "test", spec, std::move(options)).value();
  arena->want(64 << 10);
  turns.until_waiting();
  EXPECT_EQ(arena->ready(), 0u);
  EXPECT_EQ(device.pinned(), 0u);
  turns.set_open(true);
  watch.until_ready(*arena, 64 << 10);
  arena->stop();
  EXPECT_EQ(turns.takes, 16);  // one for each piece
  EXPECT_FALSE(turns.taken);
}

TEST(ArenaGrowing, stops_while_it_waits_for_its_turn) {
  FakeDevice device(discrete());
  Watch watch;
  ManualTurn::Shared turns;
  turns.set_open(false);
  MemoryOptions options = watch.options();
  options.turn = std::make_unique<ManualTurn>(turns);
  const auto arena = TierMemory::growing(device, 64 << 10, "test", pages(), std::move(options)).value();
  arena->want(64 << 10);
  turns.until_waiting();
  arena->stop();
  EXPECT_EQ(device.pinned(), 0u);
}

TEST(ArenaGrowing, goes_on_without_its_turn_when_that_does_not_come) {
  FakeDevice device(discrete());
  Watch watch;
  ManualTurn::Shared turns;
  turns.set_open(false);
  MemoryOptions options = watch.options();
  options.turn = std::make_unique<ManualTurn>(turns);
  policy::ProvisionSpec spec = pages();
  spec.pin_deadline = 1'000'000;
  spec.extent = policy::Extent::all;
  const auto arena = TierMemory::growing(device, 64 << 10, "test", spec, std::move(options)).value();
  while (arena->report().touched < 64 << 10) std::this_thread::yield();
  arena->want(32 << 10);  // nothing is left to do but to wait
  watch.until_ready(*arena, 32 << 10);
  EXPECT_EQ(arena->ready(), 32u << 10);
  watch.until_trouble();
  turns.set_open(true);
  arena->want(64 << 10);
  watch.until_ready(*arena, 64 << 10);
  while (device.pinned() < 64 << 10) std::this_thread::yield();  // what was used without too, later
  arena->stop();
  EXPECT_EQ(arena->report().pinned, 64u << 10);
  EXPECT_EQ(watch.troubles().size(), 1u);
  EXPECT_TRUE(device.violations().empty());
}

TEST(ArenaGrowing, a_copy_that_never_began_does_not_end) {
  FakeDevice device(discrete());
  Watch watch;
  const auto arena = grow(device, 64 << 10, watch);
  arena->copy_begun(0, 4096);
  EXPECT_THROW(arena->copy_ended(4096, 4096, 0, {}), std::logic_error);
}

// The caller may hold any lock that `changed` takes.
TEST(ArenaGrowing, callers_are_never_called_back) {
  FakeDevice device(discrete());
  ManualTurn::Shared turns;
  turns.set_open(false);
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  MemoryOptions options;
  options.changed = [&] {
    std::lock_guard lock(mutex);
    ++calls;
    changed.notify_all();
  };
  options.turn = std::make_unique<ManualTurn>(turns);
  policy::ProvisionSpec spec = pages();
  spec.pin_deadline = 0;  // what is touched is ready as soon as it is wanted
  spec.extent = policy::Extent::all;
  const auto arena = TierMemory::growing(device, 256 << 10, "test", spec, std::move(options)).value();
  while (arena->report().touched < 256 << 10) std::this_thread::yield();
  for (std::size_t end = 4096; end <= 256 << 10; end += 4096) {
    std::unique_lock lock(mutex);
    const int before = calls;
    arena->want(end);
    EXPECT_EQ(arena->ready(), end);
    changed.wait(lock, [&] { return calls > before; });
  }
}

TEST(ArenaGrowing, whole_is_registered_once) {
  FakeDevice device(discrete());
  Watch watch;
  policy::ProvisionSpec spec = pages();
  spec.extent = policy::Extent::all;
  spec.pinning = policy::Pinning::whole;
  spec.pin_deadline = policy::kNever;
  const auto arena = grow(device, 256 << 10, watch, spec);
  watch.until_ready(*arena, 256 << 10);
  EXPECT_EQ(arena->report().pieces, 1u);
  EXPECT_EQ(device.pinned(), 256u << 10);
  int parts = 0;
  arena->for_each_part(0, 256 << 10, [&](std::size_t, std::size_t) { ++parts; });
  EXPECT_EQ(parts, 1);
}

TEST(ArenaGrowing, figures_are_reported) {
  FakeDevice device(discrete());
  Watch watch;
  const auto arena = incremental(device, 64 * kMiB, watch);
  arena->want(64 * kMiB);
  arena->copy_begun(0, kMiB);
  watch.until_ready(*arena, 64 * kMiB);
  arena->copy_ended(0, kMiB, kMiB, std::chrono::milliseconds(1));
  const MemoryReport report = arena->report();
  EXPECT_EQ(report.strategy, "incremental");
  EXPECT_EQ(report.bytes, 64 * kMiB);
  EXPECT_EQ(report.ready, 64 * kMiB);
  EXPECT_EQ(report.touched, 64 * kMiB);
  EXPECT_EQ(report.pinned, 64 * kMiB);
  EXPECT_GT(report.pieces, 0u);
  EXPECT_GE(report.piece, 2 * kMiB);
  EXPECT_GT(report.figures.touch_beside + report.figures.touch_alone, 0);
  EXPECT_GT(report.figures.pin, 0);
  EXPECT_EQ(report.huge_pages, platform::huge_pages().on);
}

// Whether each mapping of an arena has this flag of /proc/self/smaps ("dc": a forked child does not get it).
bool all_have(const TierMemory& arena, const std::string& flag) {
  const auto first = reinterpret_cast<std::uintptr_t>(arena.data()), last = first + arena.size();
  std::ifstream file("/proc/self/smaps");
  std::size_t mappings = 0, with = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream header(line);
    if (header >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin < last && end > first;
      mappings += inside;
    } else if (inside && line.starts_with("VmFlags:")) {
      with += (line + " ").find(" " + flag + " ") != line.npos;
    }
  }
  return mappings > 0 && with == mappings;
}

TEST(ArenaGrowing, what_is_registered_with_a_device_is_kept_from_children) {
  FakeDevice device(discrete());
  Watch watch;
  const auto arena = grow(device, 64 << 10, watch);
  EXPECT_TRUE(all_have(*arena, "dc"));
  arena->want(64 << 10);
  watch.until_ready(*arena, 64 << 10);
  EXPECT_TRUE(all_have(*arena, "dc"));
  EXPECT_TRUE(all_have(*arena, "rd"));
  const auto host = platform::make_host_device();
  EXPECT_FALSE(all_have(*grow(*host, 8 * kMiB, watch), "dc")) << "ordinary memory is anybody's";
}

// As under `ulimit -v`.
TEST(ArenaGrowing, goes_on_with_the_addresses_that_it_gets) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages_now = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages_now);
  const rlimit limited{pages_now * 4096 + 6 * kGiB, before.rlim_max};
  FakeDevice device(discrete());
  Watch watch, of_whole;
  MemoryOptions whole = of_whole.options();
  whole.whole = true;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limited), 0);
  auto arena = TierMemory::growing(device, 8 * kGiB, "test", pages(), watch.options());
  const auto refused = TierMemory::growing(device, 8 * kGiB, "test", pages(), std::move(whole));
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ((*arena)->size(), 8 * kGiB);
  EXPECT_EQ((*arena)->limit(), 4 * kGiB);
  watch.until_trouble();
  EXPECT_NE(watch.troubles()[0].find("cannot map"), std::string::npos) << watch.troubles()[0];
  (*arena)->want(16 << 10);
  watch.until_ready(**arena, 16 << 10);
  EXPECT_FALSE(refused) << "who needs all of it";
}

TEST(ArenaGrowing, huge_pages_are_asked_for) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "this kernel has none";
  FakeDevice device(discrete());
  Watch watch;
  EXPECT_TRUE(all_have(*grow(device, 8 * kMiB, watch), "hg"));
}

TEST(ArenaGrowing, gives_its_addresses_back) {
  const auto device = platform::make_host_device();
  auto arena = TierMemory::host(*device, 64 * kMiB, HostStrategy::incremental).value();
  std::byte* const memory = arena->data();
  unsigned char present = 0;
  EXPECT_EQ(::mincore(memory, 4096, &present), 0);
  arena.reset();
  EXPECT_EQ(::mincore(memory, 4096, &present), -1);
}

// --- device memory ---------------------------------------------------------------------------------------------------

TEST(ArenaMapped, has_its_first_piece_at_once_and_the_rest_later) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = 8192;
  const auto arena = TierMemory::on_device(device, 100'000, DeviceStrategy::mapped, std::move(options)).value();
  EXPECT_GE(arena->ready(), 8192u);
  EXPECT_EQ(arena->size(), 102'400u);
  watch.until_ready(*arena, 102'400);
  EXPECT_EQ(device.allocated(), 102'400u);
  EXPECT_EQ(arena->report().mapped, 102'400u);
  EXPECT_EQ(arena->report().strategy, "mapped");
}

TEST(ArenaMapped, a_device_that_is_full_makes_it_smaller) {
  FakeDevice device(discrete());
  device.limit_mapped(20'480);
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = 8192;
  const auto arena = TierMemory::on_device(device, 100'000, DeviceStrategy::mapped, std::move(options)).value();
  watch.until([&] { return arena->limit() < arena->size(); });
  EXPECT_EQ(arena->limit(), 16'384u);
  EXPECT_EQ(arena->ready(), 16'384u);
  arena->stop();
  ASSERT_EQ(watch.troubles().size(), 1u);
  EXPECT_NE(watch.troubles()[0].find("16384 of 102400 bytes"), std::string::npos) << watch.troubles()[0];
}

TEST(ArenaMapped, a_device_that_is_full_from_the_start_is_refused) {
  FakeDevice device(discrete());
  device.fail_nth_map(1);
  const auto refused = TierMemory::on_device(device, 100'000, DeviceStrategy::mapped);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_EQ(device.reserved(), 0u);
}

}  // namespace
}  // namespace ebb::memory
