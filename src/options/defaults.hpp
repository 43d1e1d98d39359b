#pragma once
// A store's options after every default has been chosen.
#include <functional>
#include <map>
#include <memory>

#include "base/log.hpp"
#include "device/device.hpp"
#include "options/environment.hpp"
#include "os/clock.hpp"
#include "os/files.hpp"
#include "planner/provisioner.hpp"
#include "planner/topology.hpp"
#include "storage/persistent_storage.hpp"
#include "storage/veloc/veloc_of.hpp"

namespace ebb::share {
struct NodeSeams;
}  // namespace ebb::share

namespace ebb::cache {
class TierMemory;
struct MemoryOptions;
}  // namespace ebb::cache

namespace ebb::options {

/// The machinery below the store. Tests put doubles here.
struct Seams {
  std::shared_ptr<os::Files> files;
  std::shared_ptr<os::Clock> clock;
  std::shared_ptr<device::Device> device;                                      // the application's
  std::map<planner::NodeIndex, std::shared_ptr<device::Device>> devices = {};  // of nodes that have one of their own
  std::shared_ptr<const share::NodeSeams> node = nullptr;                      // of a node's pool; null: the real ones

  // Of file tiers that are not in segment files of a directory.
  using OpenStorage = std::function<std::unique_ptr<storage::PersistentStorage>(storage::Done, storage::Persisted)>;
  std::map<planner::TierIndex, OpenStorage> storages = {};

  const std::shared_ptr<device::Device>& device_of(planner::NodeIndex node) const {
    const auto own = devices.find(node);
    return own == devices.end() ? device : own->second;
  }
};

/// The node's pool that a store's host cache is in.
struct PoolSetup {
  std::uint64_t budget = 0;
  std::uint64_t chunk_bytes = 256 << 10;
  bool program = true;
  bool overflow = true;  // through the page cache
  std::uint64_t rank = 0;
  std::string job;                         // share::job_identity()
  std::uint64_t disk = 0;                  // of all ranks of the node; 0: each may use all that its local tier has
  std::shared_ptr<std::byte> memory = {};  // of the host cache, set when the pool is joined, as the next
  std::function<Result<void>(std::uint64_t)> claim = {};
};

/// The slowest file tier is in VELOC's files.
struct VelocSetup {
  std::filesystem::path directory;
  storage::VelocOf of;
};

/// A directory of a parallel file system, below the local tier.
struct SharedSetup {
  std::filesystem::path directory;
  bool direct_io = true;
};

/// Everything that an engine needs to start.
struct EngineSetup {
  planner::Machine machine;
  std::filesystem::path directory;         // of the first file tier, if there is one
  std::optional<SharedSetup> shared = {};  // of the second
  std::optional<VelocSetup> veloc = {};
  Io io = Io::automatic;
  bool direct_io = true;
  Durability durability = Durability::ephemeral;
  bool readonly = false;
  bool checksums = true;    // of a persistent store's payloads; for benchmarks
  bool verify_all = false;  // not with a GPU
  std::optional<Seconds> close_timeout;
  std::optional<std::filesystem::path> event_log;
  base::Log log;
  std::string settings;  // one line for a person
  DeviceArena device_arena = DeviceArena::mapped;
  HostArena host_arena = HostArena::incremental;
  std::optional<planner::ProvisionSpec> provision;  // of incremental host memory, for tests
  // In place of `host_arena`: how a benchmark makes the host cache.
  std::function<Result<std::unique_ptr<cache::TierMemory>>(device::Device&, std::size_t, cache::MemoryOptions&&)>
      make_host_memory;
  std::uint64_t map_piece = std::uint64_t{1} << 30;  // of a mapped device arena
  std::optional<PoolSetup> pool = {};
  std::uint64_t lend = 0, borrow = 0;  // bytes; kBorrowAll
  double lend_share = 1;
  std::string lending_group;      // share::lending_group()
  std::uint64_t local_ranks = 1;  // this job's processes on this node, this one included
};

/// What `lend_share` may be.
inline constexpr std::string_view kShares = "a number above 0, at most 1, such as \"0.25\"";

/// The tier of what other processes lend. Its own memory is none: all of it comes as segments.
inline constexpr std::string_view kPeerTier = "peer";

/// How many processes of this job the launcher started on this node (Open MPI, MPICH, Intel MPI, Slurm, PMI, torchrun);
/// 1 without one. Error invalid_argument: what the first of their variables says is no number from 1.
Result<std::uint64_t> local_ranks(const Environment& environment);

/// The process's rank in its job: `EBBTIDE_RANK`, else the launcher's (Open MPI, MPICH, PMIx, PALS, Flux, Slurm,
/// torchrun), else 0. Error invalid_argument: what the first of these says is no rank.
Result<std::uint64_t> rank_in_job(const Environment& environment);

/// Whether so much memory can be lent. Error invalid_argument, which names it `key`.
Result<void> check_offer(std::string_view key, std::uint64_t bytes);

/// Chooses what `options` leaves out, after the environment was applied. Errors: invalid_argument (all tiers of size 0,
/// a size below 4096, no such directory), unsupported (a directory in memory), io_error.
Result<EngineSetup> choose_setup(const Options& options, os::Files& files, device::Device& on,
                                 const Environment& environment);

}  // namespace ebb::options
