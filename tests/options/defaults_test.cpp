#include "options/defaults.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "options/environment.hpp"
#include "os/memory_limits.hpp"
#include "tests/doubles/forward_device.hpp"
#include "tests/doubles/no_files.hpp"

namespace ebb::options {
namespace {

const std::unique_ptr<device::Device> kMemory = device::make_host_device();

using os::cgroup_memory;
using os::SysResult;

// A machine that is only files of /proc and /sys, and one disk.
class FakeFiles : public doubles::NoFiles {
 public:
  std::map<std::string, std::string> texts{
      {"/proc/meminfo", "MemTotal:  100 kB\nMemAvailable:  8388608 kB\nSwap: 1 kB\n"}};
  std::map<std::string, os::FileSystem> disks{{"/tmp", {"ext4", false, 10ull << 30, 20ull << 30}},
                                              {"/dev/shm", {"tmpfs", true, 1ull << 30, 1ull << 30}}};

  SysResult open_read(const std::filesystem::path& path) noexcept override {
    const auto found = texts.find(path.string());
    if (found == texts.end()) return SysResult::failed(ENOENT);
    open_.push_back(found->second);
    return SysResult::of(static_cast<std::int64_t>(open_.size()) - 1);
  }
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    const std::string& text = open_[static_cast<std::size_t>(fd)];
    const std::size_t part = std::min<std::size_t>({bytes, 7, text.size() - offset});  // short reads
    std::memcpy(memory, text.data() + offset, part);
    return SysResult::of(static_cast<std::int64_t>(part));
  }
  SysResult close(int) noexcept override { return SysResult::of(0); }
  SysResult describe(const std::filesystem::path& directory, os::FileSystem& out) noexcept override {
    const auto found = disks.find(directory.string());
    if (found == disks.end()) return SysResult::failed(ENOENT);
    out = found->second;
    return SysResult::of(0);
  }

 private:
  std::vector<std::string> open_;
};

std::uint64_t size_of(const EngineSetup& setup, std::string_view tier) {
  for (const auto& spec : setup.machine.tiers) {
    if (spec.name == tier) return spec.capacity;
  }
  return 0;
}

// A disk that refuses O_DIRECT at one of its calls.
class NotDirect final : public FakeFiles {
 public:
  enum class At : std::uint8_t { nowhere, open, write, read, small_blocks };
  explicit NotDirect(At at) : at_(at) {}
  SysResult open_unlinked(const std::filesystem::path&, bool direct) noexcept override {
    return direct && at_ == At::open ? SysResult::failed(EINVAL) : SysResult::of(7);
  }
  SysResult write(int, const void*, std::size_t bytes, std::uint64_t offset) noexcept override {
    return at_ == At::write ? SysResult::failed(EINVAL) : moved(bytes, offset);
  }
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    if (fd != 7) return FakeFiles::read(fd, memory, bytes, offset);
    return at_ == At::read ? SysResult::failed(EINVAL) : moved(bytes, offset);
  }

 private:
  SysResult moved(std::size_t bytes, std::uint64_t offset) const {
    const bool whole = bytes % 65536 == 0 && offset % 65536 == 0;
    return at_ == At::small_blocks && !whole ? SysResult::failed(EINVAL)
                                             : SysResult::of(static_cast<std::int64_t>(bytes));
  }
  const At at_;
};

TEST(Defaults, UseThePageCacheWithOneWarningWhereODirectIsRefused) {
  using At = NotDirect::At;
  for (const At at : {At::nowhere, At::open, At::write, At::read, At::small_blocks}) {
    NotDirect files(at);
    std::vector<std::string> warnings;
    Options options;
    options.log_with_severity = [&](Severity severity, std::string_view text) {
      if (severity == Severity::warning) warnings.emplace_back(text);
    };
    const EngineSetup setup = choose_setup(options, files, *kMemory, {}).value();
    EXPECT_EQ(setup.direct_io, at == At::nowhere) << static_cast<int>(at);
    ASSERT_EQ(warnings.size(), at == At::nowhere ? 0u : 1u);
    for (const std::string& text : warnings)
      EXPECT_NE(text.find("/tmp (ext4) refuses O_DIRECT"), std::string::npos) << text;
    for (const bool given : {false, true}) {
      options.tuning.direct_io = given;
      EXPECT_EQ(choose_setup(options, files, *kMemory, {}).value().direct_io, given);
    }
    EXPECT_EQ(warnings.size(), at == At::nowhere ? 0u : 1u) << "what was asked for needs no warning";
  }
}

TEST(Defaults, TakeTheirPartOfMemoryAndDisk) {
  FakeFiles files;
  const EngineSetup setup = choose_setup({}, files, *kMemory, {}).value();
  EXPECT_EQ(size_of(setup, "device"), (8ull << 30) / 10 / 4096 * 4096);
  EXPECT_EQ(size_of(setup, "host"), 2ull << 30);
  EXPECT_EQ(size_of(setup, "local"), 8ull << 30);
  EXPECT_EQ(setup.directory, "/tmp");
  EXPECT_NE(setup.settings.find("host 2 GiB"), std::string::npos);
  EXPECT_NE(setup.settings.find("local 8 GiB in /tmp (ext4)"), std::string::npos);
}

TEST(Defaults, TheProcessesOfTheNodeAreCounted) {
  FakeFiles files;
  EXPECT_EQ(choose_setup({}, files, *kMemory, {})->local_ranks, 1u);
  EXPECT_EQ(choose_setup({}, files, *kMemory, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}})->local_ranks, 8u);
}

TEST(Defaults, TheDeviceCacheIsAtMostFourGiB) {
  FakeFiles files;
  files.texts["/proc/meminfo"] = "MemAvailable: 104857600 kB\n";
  EXPECT_EQ(size_of(choose_setup({}, files, *kMemory, {}).value(), "device"), 4ull << 30);
}

TEST(Defaults, TheLeastLimitOfTheControlGroupsCounts) {
  FakeFiles files;
  files.texts["/proc/self/cgroup"] = "0::/user/job\n";
  EXPECT_FALSE(cgroup_memory(files));
  files.texts["/sys/fs/cgroup/user/job/memory.max"] = "max\n";
  EXPECT_FALSE(cgroup_memory(files));
  files.texts["/sys/fs/cgroup/user/memory.max"] = "2147483648\n";  // of the group that holds it
  EXPECT_EQ(cgroup_memory(files)->limit, 2ull << 30);
  files.texts["/sys/fs/cgroup/user/job/memory.max"] = "1073741824\n";
  EXPECT_EQ(cgroup_memory(files)->limit, 1ull << 30);
  EXPECT_EQ(cgroup_memory(files)->left, 1ull << 30) << "what the group does not tell is not held";
  EXPECT_EQ(size_of(choose_setup({}, files, *kMemory, {}).value(), "host"), 256ull << 20);
}

TEST(Defaults, WhereAControlGroupIsSlowedDownItIsFull) {
  FakeFiles files;
  files.texts["/proc/self/cgroup"] = "0::/job\n";
  files.texts["/sys/fs/cgroup/job/memory.max"] = "2147483648\n";
  files.texts["/sys/fs/cgroup/job/memory.high"] = "1073741824\n";
  files.texts["/sys/fs/cgroup/job/memory.current"] = "268435456\n";
  EXPECT_EQ(cgroup_memory(files)->limit, 1ull << 30);
  EXPECT_EQ(cgroup_memory(files)->left, 768ull << 20);
  files.texts["/sys/fs/cgroup/job/memory.max"] = "max\n";
  EXPECT_EQ(cgroup_memory(files)->left, 768ull << 20);
  files.texts["/sys/fs/cgroup/job/memory.high"] = "max\n";
  EXPECT_FALSE(cgroup_memory(files));
}

TEST(Defaults, WhatTheControlGroupsHoldAlreadyIsNotSharedOut) {
  FakeFiles files;
  files.texts["/proc/self/cgroup"] = "0::/user/job\n";
  files.texts["/sys/fs/cgroup/user/job/memory.max"] = "1073741824\n";
  files.texts["/sys/fs/cgroup/user/job/memory.current"] = "805306368\n";
  EXPECT_EQ(cgroup_memory(files)->left, 256ull << 20);
  EXPECT_EQ(size_of(choose_setup({}, files, *kMemory, {}).value(), "host"), 64ull << 20);
  // Cached files give way; what other memory they are beside does not.
  files.texts["/sys/fs/cgroup/user/job/memory.stat"] =
      "anon 1\nfile 536870912\ninactive_anon 7\nactive_file 134217728\ninactive_file 134217728\n";
  EXPECT_EQ(cgroup_memory(files)->left, 512ull << 20);
  // The group above has a larger limit, and less left.
  files.texts["/sys/fs/cgroup/user/memory.max"] = "4294967296\n";
  files.texts["/sys/fs/cgroup/user/memory.current"] = "4160749568\n";
  EXPECT_EQ(cgroup_memory(files)->limit, 1ull << 30);
  EXPECT_EQ(cgroup_memory(files)->left, 128ull << 20);
  files.texts["/sys/fs/cgroup/user/memory.current"] = "5368709120\n";  // it was lowered meanwhile
  EXPECT_EQ(cgroup_memory(files)->left, 0u);
  // What the machine has available may be less than what the groups leave.
  files.texts["/sys/fs/cgroup/user/memory.current"] = "0\n";
  files.texts["/proc/meminfo"] = "MemAvailable: 262144 kB\n";
  EXPECT_EQ(size_of(choose_setup({}, files, *kMemory, {}).value(), "host"), 64ull << 20);
}

TEST(Defaults, VersionOneControlGroupsCountToo) {
  FakeFiles files;
  files.texts["/proc/self/cgroup"] = "5:cpu:/x\n4:memory:/docker/abc\n";
  files.texts["/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes"] = "9223372036854771712\n";  // none
  EXPECT_FALSE(cgroup_memory(files));
  files.texts["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "4294967296\n";  // the container's own root
  EXPECT_EQ(cgroup_memory(files)->limit, 4ull << 30);
  files.texts["/sys/fs/cgroup/memory/memory.usage_in_bytes"] = "3221225472\n";
  files.texts["/sys/fs/cgroup/memory/memory.stat"] = "inactive_file 5\ntotal_inactive_file 1073741824\n";
  EXPECT_EQ(cgroup_memory(files)->left, 2ull << 30);
}

TEST(Defaults, ArenasAreThoseNamedElseThoseThatAreReadyAtOnce) {
  FakeFiles files;
  EngineSetup setup = choose_setup({}, files, *kMemory, {}).value();
  EXPECT_EQ(setup.device_arena, DeviceArena::mapped);
  EXPECT_EQ(setup.host_arena, HostArena::incremental);
  EXPECT_NE(setup.settings.find("device_arena mapped, host_arena incremental"), std::string::npos) << setup.settings;
  Options options;
  options.tuning.device_arena = DeviceArena::direct;
  setup = choose_setup(options, files, *kMemory, {}).value();
  EXPECT_EQ(setup.device_arena, DeviceArena::direct);
  EXPECT_EQ(setup.host_arena, HostArena::incremental);
  EXPECT_NE(setup.settings.find("device_arena direct, host_arena incremental"), std::string::npos) << setup.settings;
  options = {};
  options.tuning.host_arena = HostArena::direct;
  setup = choose_setup(options, files, *kMemory, {}).value();
  EXPECT_EQ(setup.device_arena, DeviceArena::mapped);
  EXPECT_EQ(setup.host_arena, HostArena::direct);
  EXPECT_NE(setup.settings.find("device_arena mapped, host_arena direct"), std::string::npos) << setup.settings;
}

TEST(Defaults, ALogGetsSeveritiesAsTextOnlyIfItTakesText) {
  FakeFiles files;
  std::vector<std::string> lines;
  Options options;
  const auto write = [&] {
    const EngineSetup setup = choose_setup(with_environment(options, {}).value(), files, *kMemory, {}).value();
    setup.log.info("warning: of a file's name");
    setup.log.warning("damaged");
    return std::exchange(lines, {});
  };
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  EXPECT_EQ(write(), (std::vector<std::string>{"warning: of a file's name", "warning: damaged"}));
  options.log_with_severity = [&](Severity severity, std::string_view text) {
    lines.push_back((severity == Severity::warning ? "W " : "I ") + std::string(text));
  };
  EXPECT_EQ(write(), (std::vector<std::string>{"I warning: of a file's name", "W damaged"}));
}

TEST(Defaults, RanksOfANodeShareHostAndDisk) {
  FakeFiles files;
  const EngineSetup one = choose_setup({}, files, *kMemory, {}).value();
  const EngineSetup four = choose_setup({}, files, *kMemory, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}).value();
  EXPECT_EQ(size_of(four, "host"), size_of(one, "host") / 4);
  EXPECT_EQ(size_of(four, "local"), size_of(one, "local") / 4);
  EXPECT_NE(four.settings.find("local ranks 4"), std::string::npos);
}

TEST(Defaults, EveryLauncherIsAsked) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE",
                           "LOCAL_WORLD_SIZE"}) {
    EXPECT_EQ(local_ranks({{name, "3"}}).value(), 3u) << name;
    EXPECT_EQ(local_ranks({{name, ""}}).value(), 1u) << name;
  }
  EXPECT_EQ(local_ranks({{"SLURM_STEP_TASKS_PER_NODE", "8(x4)"}}).value(), 8u);
  EXPECT_EQ(local_ranks({{"SLURM_STEP_TASKS_PER_NODE", "4,3"}}).value(), 4u);
  EXPECT_EQ(local_ranks({{"SLURM_STEP_TASKS_PER_NODE", "2"}, {"SLURM_NTASKS_PER_NODE", "16"}}).value(), 2u);
  EXPECT_EQ(local_ranks({}).value(), 1u);
}

TEST(Defaults, WhatIsNoNumberOfProcessesAndNoRankIsRefusedByName) {
  FakeFiles files;
  for (const char* wrong : {"0", "-2", "none", "1.5", "4x", "18446744073709551616"}) {
    const auto refused = choose_setup({}, files, *kMemory, {{"LOCAL_WORLD_SIZE", wrong}});
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_EQ(refused.error().message, "LOCAL_WORLD_SIZE=\"" + std::string(wrong) +
                                           "\" is not valid: expected the number of this job's processes on this node: "
                                           "1, 2, ...");
  }
  for (const char* wrong : {"-1", "x", "1,2"}) {
    const auto refused = rank_in_job({{"SLURM_PROCID", wrong}});
    ASSERT_FALSE(refused) << wrong;
    EXPECT_NE(refused.error().message.find("SLURM_PROCID=\"" + std::string(wrong) + "\""), std::string::npos);
  }
}

TEST(Defaults, TheUsersOwnRankComesBeforeALaunchers) {
  EXPECT_EQ(rank_in_job({}).value(), 0u);
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "SLURM_PROCID", "RANK"}) {
    EXPECT_EQ(rank_in_job({{name, "3"}}).value(), 3u) << name;
    EXPECT_EQ(rank_in_job({{name, "3"}, {"EBBTIDE_RANK", " 12 "}}).value(), 12u) << name;
    EXPECT_EQ(rank_in_job({{name, "3"}, {"EBBTIDE_RANK", ""}}).value(), 3u) << name;
  }
  for (const char* wrong : {"-1", "3x", "one", "1.0", "18446744073709551616"}) {
    const auto refused = rank_in_job({{"EBBTIDE_RANK", wrong}, {"RANK", "3"}});
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    for (const std::string& word : {std::string("EBBTIDE_RANK=\"") + wrong, std::string("0, 1, ...")})
      EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
  FakeFiles files;
  Options pooled;
  pooled.directory = "/t";
  pooled.durability = Durability::node;
  pooled.node_pool = 1 << 30;
  files.disks["/t"] = {"xfs", false, 1 << 30, 1 << 30};
  EXPECT_EQ(choose_setup(pooled, files, *kMemory, {{"EBBTIDE_RANK", "5"}, {"RANK", "1"}}).value().pool->rank, 5u);
  EXPECT_EQ(choose_setup(pooled, files, *kMemory, {{"EBBTIDE_RANK", "five"}}).error().code, Errc::invalid_argument);
}

TEST(Defaults, WhatSaysSomethingOfAPoolIsRefusedWithoutOne) {
  FakeFiles files;
  Options chunk, agent;
  chunk.tuning.node_chunk = 1 << 20;
  agent.tuning.node_agent = false;
  for (const auto& [options, word] :
       {std::pair{chunk, "tuning.node_chunk=\"1048576\""}, {agent, "tuning.node_agent=\"false\""}}) {
    const auto refused = choose_setup(options, files, *kMemory, {});
    ASSERT_FALSE(refused) << word;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("node_pool"), std::string::npos) << refused.error().message;
    Options none = options;
    none.node_pool = 0;
    EXPECT_TRUE(choose_setup(none, files, *kMemory, {}));
  }
}

TEST(Defaults, WhatIsBorrowedIsATierBelowTheDeviceCache) {
  FakeFiles files;
  Options options;
  options.device_cache = options.host_cache = 1 << 20;
  options.disk = 0;
  const auto tiers = [&] {
    std::string names;
    for (const planner::TierSpec& tier : choose_setup(options, files, *kMemory, {}).value().machine.tiers)
      names += tier.name + " ";
    return names;
  };
  EXPECT_EQ(tiers(), "device host ");
  options.borrow = kBorrowAll;
  EXPECT_EQ(tiers(), "device peer host ");
  for (const auto& [borrow, device, word] :
       {std::tuple{kBorrowAll, std::uint64_t{0}, "borrow=\"auto\""}, {std::uint64_t{5}, 1 << 20, "borrow=\"5\""}}) {
    options.borrow = borrow;
    options.device_cache = device;
    const auto refused = choose_setup(options, files, *kMemory, {});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
}

TEST(Defaults, OneBudgetHoldsTheHostCacheAndTheRing) {
  FakeFiles files;
  for (std::uint64_t memory = 1 << 20; memory < 1ull << 42; memory += memory / 7 + 12345) {
    for (const std::uint64_t disk : {std::uint64_t{0}, std::uint64_t{1} << 30}) {
      Options options;
      options.memory = memory;
      options.disk = disk;
      const EngineSetup setup = choose_setup(options, files, *kMemory, {}).value();
      const planner::Machine& machine = setup.machine;
      std::uint64_t ring = 0;
      for (const planner::NodeIndex node : planner::nodes_passed(machine))
        ring +=
            2 * machine.ring_slot * static_cast<std::uint64_t>(machine.nodes[static_cast<std::size_t>(node)].staging);
      EXPECT_EQ(ring > 0, disk > 0);
      EXPECT_EQ(size_of(setup, "device"), 0u) << "it would be the same memory";
      const std::uint64_t host = size_of(setup, "host");
      EXPECT_LE(host + ring, memory);
      EXPECT_GT(host + ring + 4096, memory) << "none of it is left over";
      EXPECT_GE(host, (memory / 2 + 4095) / 4096 * 4096) << "half of it fits, whatever " << memory << " is";
    }
  }
}

class Gpu final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  bool host_memory() const noexcept override { return false; }
};

TEST(Defaults, TheCacheOfAnotherDeviceStandsBesideTheBudget) {
  FakeFiles files;
  Gpu gpu(std::shared_ptr<device::Device>(device::make_host_device()));
  Options options;
  options.memory = 1 << 30;
  options.device_cache = 3 << 20;
  const EngineSetup setup = choose_setup(options, files, gpu, {}).value();
  EXPECT_EQ(size_of(setup, "device"), 3u << 20);
  EXPECT_EQ(size_of(setup, "host"), (1u << 30) - (32u << 20));
}

// Else a checkpoint would leave a full device cache alone as soon as the host cache has room, and not wait for a flush.
TEST(Defaults, ACopyWithinADeviceIsEstimatedToTakeLessThanOneToHostMemory) {
  FakeFiles files;
  Gpu gpu(std::shared_ptr<device::Device>(device::make_host_device()));
  const EngineSetup setup = choose_setup({}, files, gpu, {}).value();
  const auto rate = [&](const char* link) {
    return setup.machine.links.at(static_cast<std::size_t>(planner::find_link(setup.machine.links, link))).bytes_per_s;
  };
  EXPECT_GT(rate("app>device"), 10 * rate("app>host"));
  EXPECT_EQ(rate("app>host"), rate("device>host"));
}

TEST(Defaults, WhatABudgetReplacesIsRefusedBesideIt) {
  FakeFiles files;
  Options with_host, with_device, with_pool, small;
  with_host.memory = with_device.memory = with_pool.memory = 1 << 30;
  with_host.host_cache = with_device.device_cache = with_pool.node_pool = 1 << 24;
  small.memory = (1 << 20) - 1;
  for (const auto& [options, words] : {std::pair{with_host, std::array{"host_cache=\"16777216\"", "memory"}},
                                       {with_device, {"device_cache=\"16777216\"", "memory"}},
                                       {with_pool, {"node_pool=\"16777216\"", "memory"}},
                                       {small, {"memory=\"1048575\"", "at least 1048576 bytes (1 MiB)"}}}) {
    const auto refused = choose_setup(options, files, *kMemory, {});
    ASSERT_FALSE(refused) << words[0];
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    for (const char* word : words)
      EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
}

TEST(Defaults, AWarmStoreTakesItsMemoryAtOpenUnlessAnArenaSaysOtherwise) {
  FakeFiles files;
  Options options;
  options.warm = true;
  EXPECT_EQ(choose_setup(options, files, *kMemory, {}).value().device_arena, DeviceArena::direct);
  EXPECT_EQ(choose_setup(options, files, *kMemory, {}).value().host_arena, HostArena::direct);
  options.tuning.host_arena = HostArena::incremental;
  EXPECT_EQ(choose_setup(options, files, *kMemory, {}).value().host_arena, HostArena::incremental);
  options.node_pool = 1 << 30;
  EXPECT_NE(choose_setup(options, files, *kMemory, {}).error().message.find("warm=\"true\""), std::string::npos);
}

TEST(Defaults, TheDirectoryIsTheCallersElseTmpdirElseTmp) {
  FakeFiles files;
  files.disks["/t"] = files.disks["/g"] = {"xfs", false, 1 << 30, 1 << 30};
  EXPECT_EQ(choose_setup({}, files, *kMemory, {{"TMPDIR", "/t"}}).value().directory, "/t");
  Options given;
  given.directory = "/g";
  EXPECT_EQ(choose_setup(given, files, *kMemory, {{"TMPDIR", "/t"}}).value().directory, "/g");
}

TEST(Defaults, ATmpfsIsRefusedByName) {
  FakeFiles files;
  Options options;
  options.directory = "/dev/shm";
  const auto refused = choose_setup(options, files, *kMemory, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  for (const char* word : {"tmpfs", "/dev/shm", "EBBTIDE_DIR", "disk=0"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << word;
  }
  options.disk = 0;
  EXPECT_TRUE(choose_setup(options, files, *kMemory, {}));  // nothing lies there then
}

TEST(Defaults, WrongSizesAndDirectoriesAreRefusedByName) {
  FakeFiles files;
  Options options;
  options.directory = "/nowhere";
  EXPECT_NE(choose_setup(options, files, *kMemory, {}).error().message.find("directory=\"/nowhere\""),
            std::string::npos);
  options = {};
  options.host_cache = 100;
  EXPECT_NE(choose_setup(options, files, *kMemory, {}).error().message.find("host_cache=\"100\""), std::string::npos);
  options = {};
  options.device_cache = options.host_cache = options.disk = 0;
  EXPECT_EQ(choose_setup(options, files, *kMemory, {}).error().code, Errc::invalid_argument);
}

TEST(Defaults, NothingIsReadWhenAllIsGiven) {
  FakeFiles files;
  files.texts.clear();
  Options options;
  options.device_cache = 1 << 20;
  EXPECT_FALSE(choose_setup(options, files, *kMemory, {}));  // /proc/meminfo is not there
  options.host_cache = 0;
  options.disk = 0;
  const EngineSetup setup = choose_setup(options, files, *kMemory, {}).value();
  ASSERT_EQ(setup.machine.tiers.size(), 1u);
}

}  // namespace
}  // namespace ebb::options
