#include "options/defaults.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <limits>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "options/direct_io.hpp"
#include "os/memory_limits.hpp"
#include "planner/lease_ledger.hpp"
#include "planner/topology.hpp"
#include "storage/scan/segment_scan.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/veloc/veloc_storage.hpp"

std::string_view ebb::name_of(Durability durability) noexcept {
  constexpr std::array<std::string_view, 5> names = {"ephemeral", "process", "storage", "node", "shared"};
  return names.at(static_cast<std::size_t>(durability));
}

namespace ebb::options {
namespace {

constexpr std::uint64_t kGranule = 4096;
constexpr std::uint64_t kMostDeviceCache = std::uint64_t{4} << 30;

Result<std::uint64_t> given_size(std::string_view key, std::uint64_t bytes) {
  if (bytes > 0 && bytes < kGranule) {
    return base::wrong_value(key, std::to_string(bytes), "0 (no such tier) or at least 4096 bytes");
  }
  return bytes / kGranule * kGranule;
}

// The directory of the file tier: as given, else $TMPDIR, else /tmp.
std::filesystem::path directory_of(const Options& options, const Environment& environment) {
  if (options.directory) return *options.directory;
  const auto temporary = environment.find("TMPDIR");
  return temporary != environment.end() && !temporary->second.empty() ? temporary->second : "/tmp";
}

Result<os::FileSystem> disk_of(os::Files& files, const std::filesystem::path& directory) {
  os::FileSystem found;
  const std::string shown = "directory=\"" + directory.string() + "\"";
  if (const auto done = files.describe(directory, found); !done) {
    return Error{Errc::invalid_argument, shown + " cannot be used: " + os::describe_errno(done.error) +
                                             "; expected a directory on a disk (directory=, or EBBTIDE_DIR)"};
  }
  if (found.in_memory) {
    return Error{Errc::unsupported,
                 shown + " is on " + found.kind +
                     ", which keeps its files in the memory that a disk tier is meant to relieve: "
                     "name a directory on a disk (directory=, or EBBTIDE_DIR), or have no disk tier (disk=0)"};
  }
  return found;
}

// Refuses options that do not go with a shared directory, or need one.
Result<void> check_shared(const Options& options, const EngineSetup& setup) {
  if (options.veloc_rank) {
    const std::string rank = std::to_string(*options.veloc_rank);
    if (*options.veloc_rank > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
      return base::wrong_value("veloc_rank", rank, "a rank from 0 to 2147483647");
    if (!options.shared && !setup.readonly)
      return base::wrong_value("veloc_rank", rank, "shared with it: the directory of VELOC's files");
  }
  if (options.veloc_meta && !options.veloc_rank)
    return base::wrong_value("veloc_meta", options.veloc_meta->string(), "veloc_rank with it");
  if (options.veloc_chksum.value_or(false) && !options.veloc_meta)
    return base::wrong_value("veloc_chksum", "true", "veloc_meta with it: the directory of the checksum files");
  if (!options.shared && setup.durability == Durability::shared)
    return base::wrong_value("durability", "shared", "shared with it: the directory that it is about");
  if (!options.shared || setup.readonly) {
    for (const auto& [name, value] : {std::pair{"keep_last_shared", options.keep_last_shared},
                                      {"shared_every", options.shared_every},
                                      {"limit_shared", options.limit_shared}})
      if (value)
        return base::wrong_value(name, std::to_string(*value),
                                 setup.readonly ? "none with readonly: it is about what is written"
                                                : "shared with it: the directory that it is about");
    return {};
  }
  if (setup.durability == Durability::ephemeral)
    return base::wrong_value("durability", "ephemeral", "\"shared\" with shared (the default then), or another one");
  if (options.keep_last_shared.value_or(0) > 0 && options.keep_last.value_or(0) == 0)
    return base::wrong_value("keep_last_shared", std::to_string(*options.keep_last_shared),
                             "keep_last with it: how many of the newest to keep locally");
  return {};
}

// Durability and retention. Mistakes are refused here, on a program's first run.
Result<void> choose_durability(const Options& options, EngineSetup& setup) {
  setup.durability = options.durability.value_or(options.shared ? Durability::shared : Durability::ephemeral);
  setup.readonly = options.readonly.value_or(false);
  if (auto refused = check_shared(options, setup); !refused) return refused;
  planner::Retention& retention = setup.machine.retention;
  retention = {options.keep_last.value_or(0), options.keep_every.value_or(0), options.agreed.value_or(false)};
  setup.close_timeout = options.close_timeout;
  if (setup.readonly && options.durability == Durability::ephemeral) {
    return base::wrong_value("durability", "ephemeral", "none with readonly: the store has its own durability");
  }
  const bool kept = setup.readonly || setup.durability != Durability::ephemeral;
  if (kept && !options.directory) {
    return Error{Errc::invalid_argument,
                 "directory is not given: a persistent store is a directory of its own "
                 "(directory=, or EBBTIDE_DIR)"};
  }
  if (kept && options.disk && *options.disk == 0)
    return base::wrong_value("disk", "0", "a size: a persistent store needs the disk");
  if ((retention.keep_last > 0 || retention.keep_every > 0) && (!kept || setup.readonly)) {
    return Error{Errc::unsupported,
                 std::string("keep_last and keep_every are for persistent stores, and this one is ") +
                     (setup.readonly ? "readonly" : "ephemeral") + ": give durability=\"process\" or \"storage\" too"};
  }
  if (retention.keep_every > 0 && retention.keep_last == 0) {
    return base::wrong_value("keep_every", std::to_string(retention.keep_every),
                             "keep_last with it: how many of the newest to keep");
  }
  return {};
}

// A node's pool, and what it replaces.
Result<void> choose_pool(const Options& options, const Environment& environment, EngineSetup& setup) {
  if (!options.node_pool || *options.node_pool == 0) {
    if (setup.durability == Durability::node) {
      return base::wrong_value("durability", "node",
                               "node_pool with it: the memory that the processes of the node share");
    }
    const char* const expected = "node_pool with it (0: no pool): it says something of that pool alone";
    if (!options.node_pool && options.tuning.node_chunk) {
      return base::wrong_value("tuning.node_chunk", std::to_string(*options.tuning.node_chunk), expected);
    }
    if (!options.node_pool && options.node_overflow) {
      const bool wait = *options.node_overflow == NodeOverflow::wait;
      return base::wrong_value("node_overflow", wait ? "wait" : "page cache", expected);
    }
    if (!options.node_pool && options.tuning.node_agent) {
      return base::wrong_value("tuning.node_agent", *options.tuning.node_agent ? "true" : "false", expected);
    }
    return {};
  }
  const std::string shown = std::to_string(*options.node_pool);
  if (setup.readonly) {
    return base::wrong_value("node_pool", shown, "a store that is written with it, and this one is readonly");
  }
  if (options.host_cache && *options.host_cache > 0) {
    return base::wrong_value("host_cache", std::to_string(*options.host_cache),
                             "none with node_pool=" + shown + ": the host cache is this process's share of the pool");
  }
  if (options.tuning.host_arena == HostArena::direct) {
    return base::wrong_value("tuning.host_arena", "direct", "\"incremental\" with node_pool");
  }
  if (options.warm.value_or(false)) {
    return base::wrong_value("warm", "true", "false with node_pool: its memory is taken as it is used");
  }
  PoolSetup pool;
  pool.budget = *options.node_pool;
  pool.chunk_bytes = options.tuning.node_chunk.value_or(pool.chunk_bytes);
  pool.program = options.tuning.node_agent.value_or(true);
  pool.overflow = options.node_overflow.value_or(NodeOverflow::page_cache) == NodeOverflow::page_cache;
  const auto rank = options.veloc_rank ? Result(*options.veloc_rank) : rank_in_job(environment);
  if (!rank) return rank.error();
  pool.rank = *rank;
  setup.pool = std::move(pool);
  return {};
}

constexpr std::string_view kSmallest = "0, or at least 67108864 bytes (64 MiB), which is the smallest lease";

bool too_small_to_lend(std::uint64_t bytes) { return bytes > 0 && bytes < planner::kSmallestLease; }

// Memory that is lent to other processes, and borrowed of them.
Result<void> choose_leases(const Options& options, std::uint64_t device_cache, EngineSetup& setup) {
  setup.lend = options.lend.value_or(0);
  setup.borrow = options.borrow.value_or(0);
  setup.lend_share = options.lend_share.value_or(1);
  if (!(setup.lend_share > 0 && setup.lend_share <= 1)) {
    return base::wrong_value("lend_share", std::to_string(setup.lend_share), kShares);
  }
  if (auto possible = check_offer("lend", setup.lend); !possible) return possible;
  if (too_small_to_lend(setup.borrow)) {
    return base::wrong_value("borrow", std::to_string(setup.borrow), "\"auto\", " + std::string(kSmallest));
  }
  if (setup.borrow > 0 && device_cache == 0) {
    const std::string shown = setup.borrow == kBorrowAll ? "auto" : std::to_string(setup.borrow);
    return base::wrong_value("borrow", shown, "0 without a device cache: it holds what that cannot");
  }
  return {};
}

// Who only reads needs no local directory: where the store has none yet, as on another node, the shared one is all.
Result<Options> without_missing(Options options, os::Files& files) {
  if (!options.readonly.value_or(false) || !options.shared || !options.directory) return options;
  const auto local = storage::find_store(files, *options.directory);
  if (!local) return local.error();
  if (*local) return options;
  options.directory = std::exchange(options.shared, {});
  if (options.durability == Durability::shared) options.durability.reset();
  return options;
}

// What the store's checkpoints occupy already; the free space comes on top of that.
std::uint64_t held_in_store(os::Files& files, const std::filesystem::path& directory,
                            const std::optional<VelocSetup>& veloc = {}) {
  std::vector<std::string> names;
  if (!files.list(directory, names)) return 0;
  std::uint64_t held = 0;
  for (const std::string& name : names) {
    os::FileStatus status;
    const auto parsed = veloc ? storage::parse_file_name(name) : std::nullopt;
    const bool counts = veloc ? parsed && (parsed->rank == veloc->of.rank || parsed->rank == storage::kAllRanks)
                              : storage::segment_number(name).has_value();
    if (counts && files.status(directory / name, status)) held += status.allocated;
  }
  return held;
}

// Of a directory that may not exist yet, and (at level process) may be in memory.
Result<os::FileSystem> disk_of_store(os::Files& files, const char* key, const std::filesystem::path& directory) {
  os::FileSystem found;
  auto done = files.describe(directory, found);
  if (done.error == ENOENT) {
    const auto parent = std::filesystem::absolute(directory).lexically_normal().parent_path();
    done = files.describe(parent, found);
  }
  if (!done) {
    return Error{Errc::invalid_argument, std::string(key) + "=\"" + directory.string() +
                                             "\" cannot be used: " + os::describe_errno(done.error) +
                                             "; expected a store, or a name in a "
                                             "directory that exists"};
  }
  return found;
}

planner::EvictionPolicy eviction_of(Eviction eviction) {
  switch (eviction) {
    case Eviction::score: return planner::EvictionPolicy::score;
    case Eviction::score_paper: return planner::EvictionPolicy::score_paper;
    case Eviction::lru: return planner::EvictionPolicy::lru;
    case Eviction::fifo: return planner::EvictionPolicy::fifo;
  }
  return planner::EvictionPolicy::score;
}

const char* name_of_eviction(Eviction eviction) {
  constexpr std::array names = {"score", "score_paper", "lru", "fifo"};
  return names.at(static_cast<std::size_t>(eviction));
}

const char* name_of(DeviceArena arena) { return arena == DeviceArena::mapped ? "mapped" : "direct"; }
const char* name_of(HostArena arena) { return arena == HostArena::incremental ? "incremental" : "direct"; }

constexpr double kPcieRate = 50e9, kPeerRate = 300e9;

// The application's copies are one command each: only background copies must let others overtake. On a GPU they are
// enqueued, on as many streams as there are callers, and none may wait for another's.
void tune(const planner::Machine& machine, planner::LinkSpec& link, bool host_memory, bool kept) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kAll = kMiB << 20;
  if (link.from == planner::kApplication || link.to == planner::kApplication) {
    link.chunk = host_memory ? 256 * kMiB : kAll;
    if (host_memory) return;
    link.depth = 1 << 12;
    // Not measured, since a stream says late what has ended: within the GPU, and over PCIe.
    const bool over_pcie = link.from == planner::kHost || link.to == planner::kHost;
    link.bytes_per_s = over_pcie ? kPcieRate : 1e12;
    return;
  }
  // Files. Two requests keep the disks of machines without a GPU busy; with checksums, as many as the disk can queue.
  if (planner::on_file(machine, link.from) || planner::on_file(machine, link.to)) {
    if (!kept && host_memory) return;
    link.depth = kept ? 16 : 8;
    link.window = 16'000'000;
    return;
  }
  if (host_memory || link.from == link.to) return;
  const bool of_peers = link.from != planner::kHost && link.to != planner::kHost;
  link.chunk = 16 * kMiB;  // smaller PCIe transfers are slower
  link.bytes_per_s = of_peers ? kPeerRate : kPcieRate;
  if (of_peers) link.depth = 8;  // a chunk takes 40 us, about as long as the host needs to send the next one
}
// What is in a node's pool is handed over with a message: its agent decides when it is written.
void hand_over(planner::Machine& machine) {
  for (planner::LinkSpec& link : machine.links) {
    if (machine.nodes[static_cast<std::size_t>(link.to)].name != "local") continue;
    link.depth = planner::kTakesAll;
    link.window = 0;
    link.resources.clear();
  }
}
// A ring of 32 MiB in all: two chunks in flight on each hop, each way.
constexpr int kRingSlots = 4;
// A lender's: 64 MiB on a GPU. A slot is filled over NVLink in a seventh of the time in which the other one is emptied.
constexpr int kLentRingSlots = 2;
// Half of the slots are for what goes to a shared directory: as many chunks are read, or written there, at a time.
constexpr int kSharedRingSlots = 8;

constexpr std::uint64_t kLeastMemory = 1 << 20;
constexpr std::uint64_t kLeastSlot = 64 << 10, kMostSlot = 4 << 20;

// The slots of the staging ring of a store that has `memory` in all: the ring takes at most an eighth of it, and half
// of the least.  Powers of two, so that a file's ranges are multiples of its largest block.
std::uint64_t slot_within(std::uint64_t memory, int slots) {
  return std::clamp(std::bit_floor(memory / 8 / (2 * static_cast<std::uint64_t>(slots))), kLeastSlot, kMostSlot);
}

// What `memory` replaces.
Result<void> check_memory(const Options& options, bool on_processors) {
  if (!options.memory) return {};
  const std::string none = "none with memory=" + std::to_string(*options.memory) + ": ";
  if (options.host_cache) {
    return base::wrong_value("host_cache", std::to_string(*options.host_cache),
                             none + "the host cache is a part of it");
  }
  if (on_processors && options.device_cache) {
    return base::wrong_value("device_cache", std::to_string(*options.device_cache),
                             none + "without a GPU the device cache is host memory too");
  }
  if (options.node_pool && *options.node_pool > 0) {
    return base::wrong_value("node_pool", std::to_string(*options.node_pool),
                             none + "the host cache is a part of both");
  }
  if (*options.memory < kLeastMemory) {
    return base::wrong_value("memory", std::to_string(*options.memory),
                             "at least " + std::to_string(kLeastMemory) + " bytes (1 MiB)");
  }
  return {};
}

// A whole number in the environment.
struct Number {
  std::string_view more = {};  // what may begin behind it
  std::uint64_t least = 0;
  std::string_view right;
};

// Of the first of these variables that is not empty. Nothing: all are. Error invalid_argument: it is no such number.
Result<std::optional<std::uint64_t>> first_number(const Environment& environment, std::span<const char* const> names,
                                                  const Number& wanted) {
  for (const char* name : names) {
    const auto found = environment.find(name);
    if (found == environment.end() || base::trimmed(found->second).empty()) continue;
    const std::string_view text = base::trimmed(found->second);
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = end == text.data() + text.size() || wanted.more.find(*end) != std::string_view::npos;
    if (failed == std::errc{} && whole && number >= wanted.least) return std::optional(number);
    return base::wrong_value(name, found->second, wanted.right);
  }
  return std::optional<std::uint64_t>();
}

}  // namespace

Result<void> check_offer(std::string_view key, std::uint64_t bytes) {
  if (!too_small_to_lend(bytes) && bytes <= INT64_MAX) return {};
  return base::wrong_value(key, std::to_string(bytes), std::string(kSmallest) + ", and below 8 EiB");
}

Result<std::uint64_t> local_ranks(const Environment& environment) {
  constexpr std::array names = {
      "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",           "PMI_LOCAL_SIZE",        "PALS_LOCAL_SIZE",
      "FLUX_JOB_LOCAL_SIZE",        "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "LOCAL_WORLD_SIZE"};
  // Slurm writes "4(x2)" or "4,3": the first number is the largest, or close to it.
  const auto found =
      first_number(environment, names,
                   {.more = "(,", .least = 1, .right = "the number of this job's processes on this node: 1, 2, ..."});
  if (!found) return found.error();
  return (*found).value_or(1);
}

Result<std::uint64_t> rank_in_job(const Environment& environment) {
  constexpr std::array names = {"EBBTIDE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",
                                "PALS_RANKID",  "FLUX_TASK_RANK",       "SLURM_PROCID", "RANK"};
  const auto found =
      first_number(environment, names, {.right = "the process's rank in its job: 0, 1, ..., another for each process"});
  if (!found) return found.error();
  return (*found).value_or(0);
}

Result<EngineSetup> choose_setup(const Options& given, os::Files& files, device::Device& on,
                                 const Environment& environment) {
  const auto chosen = without_missing(given, files);
  if (!chosen) return chosen.error();
  const Options& options = *chosen;
  const auto counted = local_ranks(environment);
  if (!counted) return counted.error();
  const std::uint64_t ranks = *counted;
  if (auto refused = check_memory(options, on.host_memory()); !refused) return refused.error();
  std::uint64_t device = 0, host = 0, disk = 0;
  if (!options.device_cache || !options.host_cache) {
    auto available = os::available_memory(files);
    if (!available) return available.error();
    const auto group = os::cgroup_memory(files);
    const std::uint64_t limit = group ? std::min(*available, group->left) : *available;
    // Without a GPU the device's free memory is this process's share of what the host has left.
    const std::uint64_t on_device = on.host_memory() ? limit / ranks : on.free_bytes();
    device = std::min(kMostDeviceCache, on_device / 10) / kGranule * kGranule;
    host = limit / 4 / ranks / kGranule * kGranule;
  }
  if (options.device_cache) {
    auto size = given_size("device_cache", *options.device_cache);
    if (!size) return size.error();
    device = *size;
  }
  if (options.host_cache) {
    auto size = given_size("host_cache", *options.host_cache);
    if (!size) return size.error();
    host = *size;
  }
  EngineSetup setup;
  setup.local_ranks = ranks;
  if (auto refused = choose_durability(options, setup); !refused) return refused.error();
  if (options.veloc_rank)
    setup.veloc = {
        options.shared ? *options.shared : directory_of(options, environment),
        {static_cast<int>(*options.veloc_rank), options.veloc_meta.value_or(""), options.veloc_chksum.value_or(false)}};
  if (auto refused = choose_pool(options, environment, setup); !refused) return refused.error();
  if (setup.pool) host = setup.pool->budget / ranks;  // less when the pool is joined
  setup.verify_all = options.verify == Verify::all;
  if (setup.verify_all && !on.host_memory()) {
    return Error{Errc::unsupported, "verify=\"all\" is not supported on a GPU (\"" + std::string(on.name()) +
                                        "\"): the processor does not see the bytes copied there; use verify=\"files\""};
  }
  const bool kept = setup.readonly || setup.durability != Durability::ephemeral;
  std::string on_disk;
  bool in_memory = false;
  if (!options.disk || *options.disk > 0) {
    setup.directory = directory_of(options, environment);
    auto found = kept ? disk_of_store(files, "directory", setup.directory) : disk_of(files, setup.directory);
    if (!found) return found.error();
    // What each rank sends to its shared directory makes room in its own part of a pool's disk.
    const bool divided = setup.pool && options.shared;
    disk = found->free_bytes / 5 * 4 / (divided ? 1 : ranks) / kGranule * kGranule;
    if (kept) disk += held_in_store(files, setup.directory) / kGranule * kGranule;
    in_memory = found->in_memory;
    on_disk = " in " + setup.directory.string() + " (" + found->kind + ")";
    if (options.disk) {
      auto size = given_size("disk", *options.disk);
      if (!size) return size.error();
      disk = *size;
    }
    if (divided) {
      setup.pool->disk = disk;
      disk = disk / ranks / kGranule * kGranule;
    }
  }
  planner::Machine& machine = setup.machine;
  const int slots = options.shared ? kSharedRingSlots : kRingSlots;
  if (options.memory) {
    machine.ring_slot = slot_within(*options.memory, slots);
    // Without a disk nothing passes the ring, and there is none.
    const std::uint64_t ring = disk > 0 ? 2 * static_cast<std::uint64_t>(slots) * machine.ring_slot : 0;
    host = (*options.memory - ring) / kGranule * kGranule;
    // One cache of ordinary memory holds larger checkpoints than two, and saves a copy between them.
    if (on.host_memory()) device = 0;
  }
  const auto add = [&](const char* name, planner::Medium medium, std::uint64_t bytes) {
    if (bytes == 0) return;
    machine.tiers.push_back({name, medium, bytes, kGranule});
    // An agent writes a pool's memory to files as it is there.
    const bool in_pool = setup.pool && medium == planner::Medium::host;
    if (medium != planner::Medium::file && !in_pool) machine.tiers.back().grain = planner::kGrain;
  };
  if (auto refused = choose_leases(options, device, setup); !refused) return refused.error();
  const std::uint64_t adopted = options.adopted.value_or(0);
  if (adopted > 0 && device == 0) {
    return base::wrong_value("adopted", std::to_string(adopted), "0 without a device cache: it holds what comes back");
  }
  add("device", planner::Medium::device, device);
  if (adopted > 0) machine.tiers.front().adopted = adopted / kGranule * kGranule;
  if (setup.borrow > 0) {
    machine.tiers.push_back({std::string(kPeerTier), planner::Medium::device, 0, kGranule});
    machine.tiers.back().grain = planner::kGrain;
  }
  add("host", planner::Medium::host, host);
  add("local", planner::Medium::file, disk);
  if (options.shared) {
    const auto found = disk_of_store(files, "shared", *options.shared);
    if (!found) return found.error();
    // Of a pool, each rank's versions have a directory of their own there, which any node finds.
    const auto directory = setup.veloc  ? storage::veloc_own_directory(*options.shared, setup.veloc->of.rank)
                           : setup.pool ? *options.shared / ("rank-" + std::to_string(setup.pool->rank))
                                        : *options.shared;
    const std::uint64_t held = held_in_store(files, setup.veloc ? *options.shared : directory, setup.veloc);
    add("shared", planner::Medium::file, (found->free_bytes / 5 * 4 + held) / kGranule * kGranule);
    planner::TierSpec& tier = machine.tiers.back();
    if (options.keep_last_shared)
      tier.retention = planner::Retention{*options.keep_last_shared, options.keep_every.value_or(0)};
    static_assert(kOnRequest == planner::kOnRequest);
    tier.every = setup.readonly ? planner::kNothingComes : options.shared_every.value_or(0);
    const bool direct = options.tuning.direct_io.value_or(!refuses_direct_io(files, *options.shared));
    setup.shared = {directory, direct};
    on_disk += ", shared in " + directory.string() + " (" + found->kind + ")";
  }
  if (machine.tiers.empty()) {
    return Error{Errc::invalid_argument,
                 "device_cache=0, host_cache=0 and disk=0 leave no tier: give one of them a size"};
  }
  planner::connect(machine, slots);
  for (const planner::TierSpec& tier : machine.tiers)
    if (tier.name == kPeerTier) machine.nodes[static_cast<std::size_t>(tier.node)].staging = kLentRingSlots;
  for (planner::LinkSpec& link : machine.links) {
    tune(machine, link, on.host_memory(), kept);
    if (machine.nodes[static_cast<std::size_t>(link.to)].name == "shared")
      link.most_bytes_per_s = static_cast<double>(options.limit_shared.value_or(0));
  }
  if (setup.pool && kept) hand_over(machine);
  const Eviction eviction = options.eviction.value_or(Eviction::score);
  machine.eviction = eviction_of(eviction);
  machine.manual_prefetch = options.prefetch == Prefetch::manual;
  machine.ephemeral = !kept;
  setup.io = options.tuning.io.value_or(Io::automatic);
  setup.event_log = options.event_log;
  const bool warm = options.warm.value_or(false);
  setup.device_arena = options.tuning.device_arena.value_or(warm ? DeviceArena::direct : DeviceArena::mapped);
  setup.host_arena = options.tuning.host_arena.value_or(warm ? HostArena::direct : HostArena::incremental);
  if (options.log_with_severity)
    setup.log = *options.log_with_severity;
  else if (options.log)
    setup.log = *options.log;
  setup.direct_io = options.tuning.direct_io.value_or(!in_memory);
  if (setup.direct_io && disk > 0 && !options.tuning.direct_io && refuses_direct_io(files, setup.directory)) {
    setup.direct_io = false;
    setup.log.warning("the file system" + on_disk +
                      " refuses O_DIRECT: files are written and read through the page cache, which takes memory beside "
                      "the caches (tuning direct_io=false says so without this warning)");
  }
  const auto leased = [](const char* what, std::uint64_t bytes) {
    if (bytes == 0) return std::string();
    return std::string(", ") + what + " " + (bytes == kBorrowAll ? "auto" : format_bytes(bytes));
  };
  const std::string at_share =
      setup.lend > 0 && setup.lend_share < 1 ? " at a share of " + std::to_string(setup.lend_share) : "";
  setup.settings = std::string(on.name()) + ": device " + format_bytes(device) + ", host " + format_bytes(host) +
                   ", local " + format_bytes(disk) + on_disk + leased("lend", setup.lend) + at_share +
                   leased("borrow", setup.borrow) + ", local ranks " + std::to_string(ranks) + ", eviction " +
                   name_of_eviction(eviction) + ", prefetch " + (machine.manual_prefetch ? "manual" : "auto") +
                   ", durability " +
                   (setup.readonly ? "as it was written (readonly)" : std::string(name_of(setup.durability))) +
                   ", verify " + (setup.verify_all ? "all" : "files") + ", device_arena " +
                   name_of(setup.device_arena) + ", host_arena " + name_of(setup.host_arena);
  return setup;
}

}  // namespace ebb::options
