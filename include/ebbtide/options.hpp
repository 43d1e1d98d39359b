#pragma once
// What a store is opened with. Every option may also come from the environment (`EBBTIDE_DEVICE_CACHE=4GiB`).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/error.hpp"
#include "ebbtide/units.hpp"

namespace ebb {

/// `Options::borrow`: as much as others lend.
inline constexpr std::uint64_t kBorrowAll = UINT64_MAX;
/// Of Options::shared_every: versions go to the shared directory that CheckpointOptions::to_shared or a
/// `wait(version, "shared")` asks for, and no others.
inline constexpr std::uint64_t kOnRequest = UINT64_MAX - 1;

/// ephemeral: nothing outlives the process; a consumed checkpoint is discarded.
/// process: handed to the operating system; outlives the process, however it ends.
/// storage: on stable storage; outlives a power loss too. docs/durability.md lists the faults that each survives.
/// node: in the memory of a node's pool, listed there; outlives the process, not the machine. It goes on to stable
/// storage behind the program's back. Needs `node_pool`; weaker than storage.
/// shared: on stable storage in the shared directory; outlives the node. Needs `shared`.
enum class Durability { ephemeral, process, storage, node, shared };
std::string_view name_of(Durability durability) noexcept;  ///< as the option's text: "storage"
enum class DeviceArena { mapped, direct };                 ///< mapped: memory in pieces, in the background
enum class HostArena { incremental, direct };              ///< incremental: touched and pinned in pieces, on demand
enum class NodeOverflow { page_cache, wait };              ///< what has no room in a node's pool
enum class Prefetch { automatic, manual };                 ///< manual: nothing is prefetched before `start_prefetch()`
enum class Eviction { score, score_paper, lru, fifo };
enum class Io { automatic, uring, threads };
/// files: bytes that are read from a persistent store's files are checked. all: each checkpoint's bytes are also hashed
/// when they are written and checked when they are returned, from any tier; not available on a GPU.
enum class Verify { files, all };
/// reverse: each checkpoint is hinted, when it is written, ahead of the earlier ones
enum class Order { none, reverse };

/// warning: something is damaged or was lost.
enum class Severity { info, warning };

/// The beginning of a log line that is a warning.
inline constexpr std::string_view kWarning = "warning: ";

/// Options that few programs need: to measure, or to work around a machine. As text, `tuning` is
/// "io=threads, direct_io=false".
struct Tuning {
  /// How the memory of one cache is allocated. `direct`: all of it before `open` returns, as `warm` says for both.
  std::optional<DeviceArena> device_arena = {};
  std::optional<HostArena> host_arena = {};
  std::optional<Io> io = {};
  std::optional<bool> direct_io = {};  ///< O_DIRECT (default, where the directory takes it); false: page cache
  /// The agent is the program `ebbtide-agent` (default, if it is installed); false: a thread of one of the processes.
  std::optional<bool> node_agent = {};           ///< with node_pool alone
  std::optional<std::uint64_t> node_chunk = {};  ///< bytes, a power of two; default: 256 KiB; with node_pool alone
};

/// Options of `Store::open`. A field that is left out comes from `EBBTIDE_<FIELD>`, else it has its default.
struct Options {
  /// The device of the device cache: "cuda" (the calling thread's current GPU), "cuda:N", "cpu" (ordinary memory), or
  /// "auto" (default): "cuda" if there is a GPU, else "cpu".
  std::optional<std::string> device = {};
  std::optional<std::filesystem::path> directory = {};  ///< else `$EBBTIDE_DIR`, `$TMPDIR`, `/tmp`; a tmpfs is refused
  /// Bytes; default: the lesser of 4 GiB and 10% of free device memory.
  std::optional<std::uint64_t> device_cache = {};
  /// Bytes of the program's own memory that may be replicas in the device cache, beside `device_cache`, in place of
  /// copies there (CheckpointOptions::adopt). 0 (default): none is; else there must be a device cache.
  std::optional<std::uint64_t> adopted = {};
  /// Bytes; default: 25% of available memory, or of what the control group has left of its limit if that is less.
  std::optional<std::uint64_t> host_cache = {};
  /// Bytes of host memory for the whole store, its staging ring included; at least 1 MiB. It sizes the host cache, in
  /// place of `host_cache`. Without a GPU there is no device cache beside it (`device_cache` is refused): both would be
  /// the same memory. A checkpoint of half of it still fits the cache. Not with `node_pool`.
  std::optional<std::uint64_t> memory = {};
  /// true: all cache memory is allocated before `open` returns, so that the first checkpoint costs what later ones do.
  /// Default: in the background, on demand (hipc22 sec. IV-A). `TierStats::arena` shows the progress. Not with
  /// `node_pool`.
  std::optional<bool> warm = {};
  /// Bytes; default: 80% of the free space, plus what a persistent store already uses. 0: no such tier. With
  /// `node_pool` and `shared`, of all processes together: each has an equal part.
  std::optional<std::uint64_t> disk = {};
  std::optional<Durability> durability = {};  ///< anything but ephemeral makes `directory` itself the store
  /// Bytes of shared memory in which the processes of this job on this node keep their host caches; each is sure of an
  /// equal share, which replaces `host_cache`. One agent writes what they hand over to the one store in `directory`
  /// (wag-dbi sec. III); ephemeral stores share the memory alone. At least two chunks a process. docs/node.md.
  std::optional<std::uint64_t> node_pool = {};
  /// With `node_pool`, how the agent writes for a process whose share is full. page_cache (default): through the page
  /// cache, at memory's pace, up to an eighth of the memory that is left, and none while processes wait for memory;
  /// NodeStats::bytes_beside is what stands beside the pool. wait: all of it past the page cache, at the disk's pace.
  std::optional<NodeOverflow> node_overflow = {};
  /// Bytes of this device's memory, beside the device cache, that other processes of this user on this node may use for
  /// their checkpoints (`borrow`): those of the scheduler's job, or of `EBBTIDE_JOB`, or else all. 0 (default): none;
  /// else at least 64 MiB. It is allocated when it is lent. `Store::lend` changes it later. docs/peers.md.
  std::optional<std::uint64_t> lend = {};
  /// Of the bandwidth at which others may copy to and from the memory that is lent, as a share of the link's rate:
  /// above 0, at most 1 (default: no limit). It is divided among the borrowers as the memory is. With `lend`, at open
  /// or later.
  std::optional<double> lend_share = {};
  /// Bytes that the store may use of what others lend; kBorrowAll ("auto"): as much as there is. They are a tier,
  /// "peer", between the device cache and the host cache. 0 (default): none; else at least 64 MiB, and a device cache.
  std::optional<std::uint64_t> borrow = {};
  /// A directory on a parallel file system, below `directory`: each version goes on to it once it is on the local disk,
  /// which then is a cache of it. With an empty `directory`, on any node, the store continues from what is there. Both
  /// directories are this store's alone. Makes `durability` "shared" unless that is given. docs/durability.md.
  std::optional<std::filesystem::path> shared = {};
  /// With `shared`: of each history there (default: `keep_last`; 0: all; what is durable there alone stays until
  /// `keep_last` newer ones are), and which versions go there: multiples of this (default, 0: all), or kOnRequest.
  std::optional<std::uint64_t> keep_last_shared = {}, shared_every = {};
  std::optional<std::uint64_t> limit_shared = {};  ///< bytes per second to `shared`, at most; default, 0: no limit
  /// `shared` has VELOC's files of this rank, `<history>-<rank>-<version>.dat`, in place of this library's own: what
  /// VELOC wrote there is found, and VELOC restarts from what is written (docs/veloc.md). Histories need a name then.
  /// With `node_pool` it is this process's rank in the pool, which is that of `directory`.
  std::optional<std::uint64_t> veloc_rank = {};
  /// With `veloc_rank`: VELOC's directory of metadata. Its aggregated files are read then.
  std::optional<std::filesystem::path> veloc_meta = {};
  /// With `veloc_meta`: each data file has a checksum file there, as VELOC's `chksum` has it. One that is written gets
  /// it, and one that is found is read if it matches it. Needs OpenSSL's libcrypto. Default: no.
  std::optional<bool> veloc_chksum = {};
  std::optional<bool> readonly = {};  ///< reads a persistent store at its own durability; writes nothing
  /// For a persistent store, in each history: once a version is durable, earlier versions that are not among the newest
  /// `keep_last` are dropped, except multiples of `keep_every`. 0 (default): none is dropped.
  std::optional<std::uint64_t> keep_last = {}, keep_every = {};
  /// Of the newest `keep_last`, only versions count that History::agree() has named, or older ones: for processes that
  /// checkpoint together and need a version that all of them have. A Group (group.hpp) sets it, and does that. Default:
  /// no.
  std::optional<bool> agreed = {};
  std::optional<Verify> verify = {};
  std::optional<Prefetch> prefetch = {};
  std::optional<Eviction> eviction = {};
  /// Limits how long closing waits for a persistent store's checkpoints to become durable (default: as long as it
  /// takes); the error names what is not durable by then. An ephemeral store drops what is pending.
  std::optional<Seconds> close_timeout = {};
  /// Where the planner's events are recorded for replay; default: nowhere.
  std::optional<std::filesystem::path> event_log = {};
  Tuning tuning = {};
  /// Called with each log line (what was chosen at open, warnings). Default: `EBBTIDE_LOG=info` sends all lines to
  /// stderr, `off` none, and otherwise stderr gets those that begin with `kWarning`. May be called from any thread,
  /// also the store's own, never with a lock held.
  std::optional<std::function<void(std::string_view)>> log = {};
  /// In place of `log`: called with each line's severity and its text without `kWarning`.
  std::optional<std::function<void(Severity, std::string_view)>> log_with_severity = {};
};

/// Fills unset fields of `options` from the environment; the error names an unknown `EBBTIDE_` variable or a wrong
/// value.
Result<Options> with_environment(Options options);
/// What is known of each option of a text, and of each of `tuning` as "tuning.NAME".
struct OptionInfo {
  std::string name;
  std::string_view kind;  ///< "name", "path", "number", "flag", "share", "seconds", "tuning"
  std::string expected;   ///< of a caller in Python
};
std::vector<OptionInfo> option_table();
/// Sets one option by name from text, as the environment and the command line do.
Result<void> set_option(Options& options, std::string_view key, std::string_view text);

}  // namespace ebb
