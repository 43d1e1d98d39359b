#pragma once
// What a store is opened with. Every option may also come from the environment (`EBBTIDE_DEVICE_CACHE=4GiB`).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"
#include "ebbtide/units.hpp"

namespace ebb {

/// ephemeral: nothing outlives the process; consumed means discarded.
/// process: handed to the operating system; outlives the process, however that ends.
/// storage: on stable storage; outlives the machine's loss of power. docs/durability.md says which faults each
/// survives.
enum class Durability { ephemeral, process, storage };
enum class DeviceArena { mapped, direct };  ///< mapped: addresses at once, memory by pieces
enum class HostArena {
  incremental,
  direct
};  ///< incremental: touched and pinned by pieces, as far as it will be needed
enum class Prefetch { automatic, manual };  ///< manual: nothing is prefetched before `start_prefetch()`
enum class Eviction { score, score_paper, lru, fifo };
enum class Io { automatic, uring, threads };
/// files: what comes from a kept store's file is checked. all: each checkpoint's bytes are hashed as they are given and
/// checked as they are handed out, whatever tier they lay on; without a GPU only.
enum class Verify { files, all };
/// reverse: each checkpoint is hinted, as it is written, ahead of the earlier ones
enum class Order { none, reverse };

/// What a line of the log that is a warning begins with.
inline constexpr std::string_view kWarning = "warning: ";

/// Options of `Store::open`. A field that is left out is taken from `EBBTIDE_<FIELD>`, then from the default.
struct Options {
  /// Where the device cache lies: "cuda" (the calling thread's current GPU), "cuda:N", "cpu" (ordinary memory), or
  /// "auto" (default): "cuda" if there is a GPU, else "cpu".
  std::optional<std::string> device = {};
  std::optional<std::filesystem::path> directory = {};  ///< else `$EBBTIDE_DIR`, `$TMPDIR`, `/tmp`; a tmpfs is refused
  /// Bytes; default: the lesser of 4 GiB and 10% of free device memory.
  std::optional<std::uint64_t> device_cache = {};
  /// Bytes; default: 25% of the lesser of available memory and what the control group has left of its limit.
  std::optional<std::uint64_t> host_cache = {};
  /// How the memory of the caches comes to be. `direct`: all of it before `open` returns. Default: little by little
  /// behind the program's back, so that `open` returns at once (hipc22 sec. IV-A). `TierStats::arena` tells how far.
  std::optional<DeviceArena> device_arena = {};
  std::optional<HostArena> host_arena = {};
  /// Bytes; default: 80% of the free space, and what a kept store holds already. 0: no such tier.
  std::optional<std::uint64_t> disk = {};
  std::optional<Durability> durability = {};  ///< anything but ephemeral makes `directory` itself the store
  std::optional<bool> readonly = {};          ///< a kept store is looked at, at its own level; nothing is written
  /// Of a kept store, in each history: once a version is durable, those before it that are not of the newest
  /// `keep_last` are dropped, but for the multiples of `keep_every`. 0 (default): none is dropped.
  std::optional<std::uint64_t> keep_last = {}, keep_every = {};
  std::optional<Verify> verify = {};
  std::optional<Prefetch> prefetch = {};
  std::optional<Eviction> eviction = {};
  std::optional<Io> io = {};
  std::optional<bool> direct_io = {};  ///< O_DIRECT (default, but in memory); false: page cache
  /// Bounds how long closing may drain a kept store (default: as long as it takes); what is not durable by then is
  /// named in the error. An ephemeral store drops what is pending.
  std::optional<Seconds> close_timeout = {};
  /// Where the planner's events are recorded for replay; none by default.
  std::optional<std::filesystem::path> event_log = {};
  /// Gets each log line (what was chosen at open, warnings); none: `EBBTIDE_LOG=info` sends them to stderr, and unless
  /// that says `off` the lines that begin with `kWarning` go there anyway. It may be called from any thread, also from
  /// the store's own, and never with a lock held.
  std::optional<std::function<void(std::string_view)>> log = {};
};

/// Fills what `options` leaves out from the environment; unknown `EBBTIDE_` names and wrong values are refused by name.
Result<Options> with_environment(Options options);
/// Sets one option by its name from text, as the environment and the command line do.
Result<void> set_option(Options& options, std::string_view key, std::string_view text);

}  // namespace ebb
