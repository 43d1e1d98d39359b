// How memory is provisioned, its cost, and its failures.
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

namespace ebb::cache {
namespace {

using doubles::FakeDevice;

// Pieces of one page, so that a little memory has many.
planner::ProvisionSpec pages(planner::Bytes lead = 0) {
  planner::ProvisionSpec spec;
  spec.piece = spec.largest_piece = 4096;
  spec.lead = lead;
  spec.pin_deadline = planner::kNever;  // a thread that pins may be late on a busy machine
  return spec;
}

std::unique_ptr<TierMemory> provision(device::Device& device, std::size_t bytes, MemoryOptions options,
                                      planner::ProvisionSpec spec = pages()) {
  return incremental_host_memory(device, bytes, std::move(options), spec).value();
}

// As in a store, except that nothing is used before it is pinned.
std::unique_ptr<TierMemory> incremental(device::Device& device, std::size_t bytes, Watch& watch) {
  planner::ProvisionSpec spec;
  spec.touchers = 1;
  spec.pin_deadline = planner::kNever;
  return provision(device, bytes, watch.options(), spec);
}

// A field of /proc/self/smaps, in bytes, of the mappings that lie within a range.
std::size_t smaps(const TierMemory& memory, const std::string& field) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data()), last = first + memory.size();
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

TEST(ProvisionedMemory, takes_little_more_memory_than_is_wanted) {
  FakeDevice device(discrete());
  Watch watch;
  const auto memory = incremental(device, 1024 * kMiB, watch);
  EXPECT_LE(smaps(*memory, "Rss"), 40 * kMiB);
  // Eight checkpoints of 8 MiB.
  for (std::size_t end = 8 * kMiB; end <= 64 * kMiB; end += 8 * kMiB) {
    memory->produced(8 * kMiB);
    memory->want(end);
    watch.until_ready(*memory, end);
  }
  memory->stop();
  EXPECT_GE(smaps(*memory, "Rss"), 64 * kMiB);
  // 64 wanted, at most 256 ahead (32 in truth, unless the machine is so slow that touching hardly follows), one piece.
  EXPECT_LE(smaps(*memory, "Rss"), (64 + 256 + 64) * kMiB);
  const MemoryReport report = memory->report();
  EXPECT_EQ(smaps(*memory, "Rss"), report.touched);
  EXPECT_EQ(report.pinned, device.pinned());
  EXPECT_LE(report.pinned, report.touched);
  EXPECT_GE(report.pinned, 64 * kMiB);
}

TEST(ProvisionedMemory, ordinary_memory_is_ready_at_once_and_touched_ahead) {
  const auto device = device::make_host_device();
  Watch watch;
  const auto memory = incremental_host_memory(*device, 1024 * kMiB, watch.options()).value();
  EXPECT_EQ(memory->ready(), 1024 * kMiB);
  memory->data()[memory->size() - 1] = std::byte{1};
  while (memory->report().touched < 32 * kMiB) std::this_thread::yield();
  memory->stop();
  EXPECT_LE(smaps(*memory, "Rss"), 36 * kMiB);
  EXPECT_EQ(memory->report().pinned, 0u);
  int parts = 0;
  memory->for_each_part(0, memory->size(), [&](std::size_t, std::size_t) { ++parts; });
  EXPECT_EQ(parts, 1);
}

TEST(ProvisionedMemory, direct_has_all_of_it) {
  const auto device = device::make_host_device();
  const auto memory = direct_host_memory(*device, 16 * kMiB).value();
  EXPECT_EQ(smaps(*memory, "Rss"), 16 * kMiB);
  EXPECT_EQ(memory->report().touched, 16 * kMiB);
  EXPECT_EQ(memory->report().strategy, "direct");
}

TEST(ProvisionedMemory, parts_end_at_the_borders_of_what_is_pinned) {
  FakeDevice device(discrete());
  Watch watch;
  const auto memory = provision(device, 64 << 10, watch.options());
  memory->want(64 << 10);
  watch.until_ready(*memory, 64 << 10);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  memory->for_each_part(100, 10'000, [&](std::size_t at, std::size_t bytes) { parts.emplace_back(at, bytes); });
  EXPECT_EQ(parts, (std::vector<std::pair<std::size_t, std::size_t>>{{100, 3996}, {4096, 4096}, {8192, 1908}}));
  memory->for_each_part(4096, 0, [&](std::size_t, std::size_t) { ADD_FAILURE(); });
}

TEST(ProvisionedMemory, what_is_pinned_and_what_is_not_have_a_border_too) {
  FakeDevice device(discrete());
  device.limit_pinned(2 * 4096);
  Watch watch;
  const auto memory = provision(device, 64 << 10, watch.options());
  memory->want(64 << 10);
  watch.until_ready(*memory, 64 << 10);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  memory->for_each_part(0, 64 << 10, [&](std::size_t at, std::size_t bytes) { parts.emplace_back(at, bytes); });
  EXPECT_EQ(parts,
            (std::vector<std::pair<std::size_t, std::size_t>>{{0, 4096}, {4096, 4096}, {8192, (64 << 10) - 8192}}));
  watch.until_trouble();
  EXPECT_EQ(watch.troubles().size(), 1u);
  EXPECT_NE(watch.troubles().at(0).find("registered"), std::string::npos) << watch.troubles()[0];
  EXPECT_EQ(memory->report().trouble, watch.troubles()[0]);
  EXPECT_EQ(memory->report().pinned, 2u * 4096);
  EXPECT_EQ(device.pinned(), 2u * 4096);
}

TEST(ProvisionedMemory, a_registration_that_fails_once_is_no_trouble) {
  FakeDevice device(discrete());
  device.fail_nth_pin(3);
  Watch watch;
  planner::ProvisionSpec spec = pages();
  spec.largest_piece = 16 << 10;
  const auto memory = provision(device, 256 << 10, watch.options(), spec);
  memory->want(256 << 10);
  watch.until_ready(*memory, 256 << 10);
  EXPECT_TRUE(watch.troubles().empty());
  EXPECT_EQ(device.pinned(), 256u << 10);
}

TEST(ProvisionedMemory, memory_that_runs_out_makes_it_smaller) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  std::atomic<const TierMemory*> made{nullptr};
  options.touch = [&](std::byte* memory, std::size_t bytes) -> Result<void> {
    while (made.load() == nullptr) std::this_thread::yield();  // where it begins is known below
    const TierMemory& tier = *made.load();
    if (memory < tier.data() + (32 << 10)) return os::populate(memory, bytes);
    // The first that fails is not the first to fail.
    while (memory == tier.data() + (32 << 10) && tier.limit() == tier.size()) std::this_thread::yield();
    return Error{Errc::out_of_memory, "none left"};
  };
  const auto memory = provision(device, 1024 << 10, std::move(options), pages());
  made = memory.get();
  memory->want(1024 << 10);
  watch.until([&] { return memory->limit() < memory->size() && memory->ready() == memory->limit(); });
  EXPECT_EQ(memory->limit(), 32u << 10);
  watch.until_trouble();
  memory->stop();
  ASSERT_EQ(watch.troubles().size(), 1u);
  EXPECT_EQ(watch.troubles()[0], "32768 of 1048576 bytes are available: none left");
  EXPECT_EQ(memory->report().limit, 32u << 10);
}

TEST(ProvisionedMemory, memory_that_runs_out_at_once_leaves_nothing) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  options.touch = [](std::byte*, std::size_t) -> Result<void> { return Error{Errc::out_of_memory, "none left"}; };
  const auto memory = provision(device, 1024 << 10, std::move(options), pages());
  memory->want(1);
  watch.until([&] { return memory->limit() == 0 && !memory->report().trouble.empty(); });
  EXPECT_EQ(memory->ready(), 0u);
}

// Its copies would fault the pages in, at the end of a control group's memory.
TEST(ProvisionedMemory, ordinary_memory_ends_before_what_there_is_no_memory_for) {
  const auto device = device::make_host_device();
  Watch watch;
  std::promise<void> over;
  std::vector<std::size_t> asked;
  MemoryOptions options = watch.options();
  options.touch = [held = over.get_future().share()](std::byte* memory, std::size_t bytes) {
    held.wait();
    return os::populate(memory, bytes);
  };
  options.left = [&](std::size_t bytes) -> Result<void> {
    asked.push_back(bytes);
    if (bytes > 6 << 20) return Error{Errc::out_of_memory, "none left"};
    return {};
  };
  const auto memory = incremental_host_memory(*device, 16 << 20, std::move(options)).value();
  memory->want(4 << 20);
  EXPECT_EQ(memory->limit(), memory->size());
  memory->want(8 << 20);
  EXPECT_EQ(memory->limit(), 4u << 20);
  EXPECT_EQ(memory->ready(), 4u << 20);
  EXPECT_EQ(asked, (std::vector<std::size_t>{4 << 20, 8 << 20}));
  over.set_value();
  watch.until_trouble();
  EXPECT_EQ(watch.troubles()[0], "4194304 of 16777216 bytes are available: none left");
}

TEST(ProvisionedMemory, cooldowns_end_though_all_threads_that_touch_are_busy) {
  FakeDevice device(discrete());
  Watch watch;
  std::atomic<int> touches{0};
  std::promise<void> over;
  MemoryOptions options = watch.options();
  options.touch = [&, held = over.get_future().share()](std::byte* memory, std::size_t bytes) {
    if (++touches > 8) held.wait();
    return os::populate(memory, bytes);
  };
  planner::ProvisionSpec spec = pages();
  spec.touchers = 1;
  spec.longest_pin = 1;  // a cooldown after each registration
  const auto memory = provision(device, 64 << 10, std::move(options), spec);
  memory->want(64 << 10);
  watch.until_ready(*memory, 8 * 4096);
  over.set_value();
  watch.until_ready(*memory, 64 << 10);
}

TEST(ProvisionedMemory, waits_in_the_queue_and_leaves_it) {
  FakeDevice device(discrete());
  Watch watch;
  ManualQueue::Shared queue;
  queue.set_open(false);
  MemoryOptions options = watch.options();
  options.queue = std::make_unique<ManualQueue>(queue);
  planner::ProvisionSpec spec = pages();
  const auto memory = provision(device, 64 << 10, std::move(options), spec);
  memory->want(64 << 10);
  queue.until_waiting();
  EXPECT_EQ(memory->ready(), 0u);
  EXPECT_EQ(device.pinned(), 0u);
  queue.set_open(true);
  watch.until_ready(*memory, 64 << 10);
  memory->stop();
  EXPECT_EQ(queue.takes, 16);  // one for each piece
  EXPECT_FALSE(queue.taken);
}

TEST(ProvisionedMemory, says_once_that_it_has_no_queue) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  options.queue = std::make_unique<os::NodePinQueue>("pin", std::vector<std::filesystem::path>());
  const auto memory = provision(device, 64 << 10, std::move(options));
  memory->want(64 << 10);
  watch.until_ready(*memory, 64 << 10);
  const std::string told = memory->report().trouble;
  EXPECT_NE(told.find("beside other processes"), std::string::npos) << told;
  EXPECT_EQ(told.find("beside other processes"), told.rfind("beside other processes")) << told;
}

TEST(ProvisionedMemory, stops_while_it_waits_in_the_queue) {
  FakeDevice device(discrete());
  Watch watch;
  ManualQueue::Shared queue;
  queue.set_open(false);
  MemoryOptions options = watch.options();
  options.queue = std::make_unique<ManualQueue>(queue);
  const auto memory = provision(device, 64 << 10, std::move(options), pages());
  memory->want(64 << 10);
  queue.until_waiting();
  memory->stop();
  EXPECT_EQ(device.pinned(), 0u);
}

TEST(ProvisionedMemory, is_used_unpinned_when_its_ticket_is_not_called) {
  FakeDevice device(discrete());
  Watch watch;
  ManualQueue::Shared queue;
  queue.set_open(false);
  MemoryOptions options = watch.options();
  options.queue = std::make_unique<ManualQueue>(queue);
  planner::ProvisionSpec spec = pages();
  spec.pin_deadline = 1'000'000;
  spec.lead = planner::kAllAhead;
  const auto memory = provision(device, 64 << 10, std::move(options), spec);
  while (memory->report().touched < 64 << 10) std::this_thread::yield();
  memory->want(32 << 10);  // only waiting is left
  watch.until_ready(*memory, 32 << 10);
  EXPECT_EQ(memory->ready(), 32u << 10);
  watch.until_trouble();
  queue.set_open(true);
  memory->want(64 << 10);
  watch.until_ready(*memory, 64 << 10);
  while (device.pinned() < 64 << 10) std::this_thread::yield();  // memory that was used unpinned too, later
  memory->stop();
  EXPECT_EQ(memory->report().pinned, 64u << 10);
  EXPECT_EQ(watch.troubles().size(), 1u);
  EXPECT_TRUE(device.violations().empty());
}

TEST(ProvisionedMemory, a_copy_that_never_began_does_not_end) {
  FakeDevice device(discrete());
  Watch watch;
  const auto memory = provision(device, 64 << 10, watch.options());
  memory->copy_begun(0, 4096);
  EXPECT_THROW(memory->copy_ended(4096, 4096), std::logic_error);
}

// The caller may hold any lock that `changed` takes.
TEST(ProvisionedMemory, callers_are_never_called_back) {
  FakeDevice device(discrete());
  ManualQueue::Shared queue;
  queue.set_open(false);
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  MemoryOptions options;
  options.changed = [&] {
    std::lock_guard lock(mutex);
    ++calls;
    changed.notify_all();
  };
  options.queue = std::make_unique<ManualQueue>(queue);
  planner::ProvisionSpec spec = pages();
  spec.pin_deadline = 1000;  // touched memory is ready as soon as it is needed
  spec.lead = planner::kAllAhead;
  const auto memory = provision(device, 256 << 10, std::move(options), spec);
  while (memory->report().touched < 256 << 10) std::this_thread::yield();
  for (std::size_t end = 4096; end <= 256 << 10; end += 4096) {
    std::unique_lock lock(mutex);
    const int before = calls;
    memory->want(end);
    EXPECT_EQ(memory->ready(), end);
    changed.wait(lock, [&] { return calls > before; });
  }
}

TEST(ProvisionedMemory, figures_are_reported) {
  FakeDevice device(discrete());
  Watch watch;
  const auto memory = incremental(device, 64 * kMiB, watch);
  memory->want(64 * kMiB);
  watch.until_ready(*memory, 64 * kMiB);
  const MemoryReport report = memory->report();
  EXPECT_EQ(report.strategy, "incremental");
  EXPECT_EQ(report.bytes, 64 * kMiB);
  EXPECT_EQ(report.ready, 64 * kMiB);
  EXPECT_EQ(report.touched, 64 * kMiB);
  EXPECT_EQ(report.pinned, 64 * kMiB);
  EXPECT_GT(report.pieces, 0u);
  EXPECT_GE(report.piece, 4 * kMiB);
  EXPECT_EQ(report.huge_pages, os::huge_pages().on);
}

// Whether each mapping of an memory has this flag of /proc/self/smaps ("dc": a forked child does not get it).
bool all_have(const TierMemory& memory, const std::string& flag) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data()), last = first + memory.size();
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

TEST(ProvisionedMemory, what_is_registered_with_a_device_is_kept_from_children) {
  FakeDevice device(discrete());
  Watch watch;
  const auto memory = provision(device, 64 << 10, watch.options());
  EXPECT_TRUE(all_have(*memory, "dc"));
  memory->want(64 << 10);
  watch.until_ready(*memory, 64 << 10);
  EXPECT_TRUE(all_have(*memory, "dc"));
  EXPECT_TRUE(all_have(*memory, "rd"));
  const auto host = device::make_host_device();
  EXPECT_FALSE(all_have(*provision(*host, 8 * kMiB, watch.options()), "dc")) << "ordinary memory is anybody's";
}

// As under `ulimit -v`.
TEST(ProvisionedMemory, goes_on_with_the_addresses_that_it_gets) {
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
  auto memory = incremental_host_memory(device, 8 * kGiB, watch.options(), pages());
  const auto refused = incremental_host_memory(device, 8 * kGiB, std::move(whole), pages());
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ((*memory)->size(), 8 * kGiB);
  EXPECT_EQ((*memory)->limit(), 4 * kGiB);
  watch.until_trouble();
  EXPECT_NE(watch.troubles()[0].find("cannot map"), std::string::npos) << watch.troubles()[0];
  (*memory)->want(16 << 10);
  watch.until_ready(**memory, 16 << 10);
  EXPECT_FALSE(refused) << "who needs all of it";
}

TEST(ProvisionedMemory, huge_pages_are_asked_for) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "this kernel has none";
  FakeDevice device(discrete());
  Watch watch;
  EXPECT_TRUE(all_have(*provision(device, 8 * kMiB, watch.options()), "hg"));
}

TEST(ProvisionedMemory, gives_its_addresses_back) {
  const auto device = device::make_host_device();
  auto memory = incremental_host_memory(*device, 64 * kMiB).value();
  std::byte* const data = memory->data();
  unsigned char present = 0;
  EXPECT_EQ(::mincore(data, 4096, &present), 0);
  memory.reset();
  EXPECT_EQ(::mincore(data, 4096, &present), -1);
}

// --- device memory ---------------------------------------------------------------------------------------------------

TEST(MappedMemory, has_its_first_piece_at_once_and_the_rest_later) {
  FakeDevice device(discrete());
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = 8192;
  const auto memory = mapped_device_memory(device, 100'000, std::move(options)).value();
  EXPECT_GE(memory->ready(), 8192u);
  EXPECT_EQ(memory->size(), 102'400u);
  watch.until_ready(*memory, 102'400);
  EXPECT_EQ(device.allocated(), 102'400u);
  EXPECT_EQ(memory->report().mapped, 102'400u);
  EXPECT_EQ(memory->report().strategy, "mapped");
}

TEST(MappedMemory, a_device_that_is_full_makes_it_smaller) {
  FakeDevice device(discrete());
  device.limit_mapped(20'480);
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = 8192;
  const auto memory = mapped_device_memory(device, 100'000, std::move(options)).value();
  watch.until([&] { return memory->limit() < memory->size(); });
  EXPECT_EQ(memory->limit(), 16'384u);
  EXPECT_EQ(memory->ready(), 16'384u);
  memory->stop();
  ASSERT_EQ(watch.troubles().size(), 1u);
  EXPECT_NE(watch.troubles()[0].find("16384 of 102400 bytes"), std::string::npos) << watch.troubles()[0];
}

TEST(MappedMemory, a_device_that_is_full_from_the_start_is_refused) {
  FakeDevice device(discrete());
  device.fail_nth_map(1);
  const auto refused = mapped_device_memory(device, 100'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_EQ(device.reserved(), 0u);
}

}  // namespace
}  // namespace ebb::cache
