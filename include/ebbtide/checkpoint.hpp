#pragma once
// One checkpoint: its regions, its description, and options to write, read and release it.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/units.hpp"

namespace ebb {

/// Histories whose names contain this are the store's own: files are kept in them (see Store::create_file). A program
/// may read them, and is refused if it writes there.
inline constexpr std::string_view kReservedInNames = "/.ebbtide-file/";
/// Likewise: what snapshots store (see Store::snapshot).
inline constexpr std::string_view kReservedForSnapshots = "/.ebbtide-snapshot/";
/// Likewise: the mark of a store that a signal suspended (see Store::suspend_on).
inline constexpr std::string_view kReservedForSuspension = "/.ebbtide-suspended/";

using Version = std::int64_t;
/// A stream of the application on the store's GPU: a `cudaStream_t`, 0 or 1 for the legacy default stream, or 2 for the
/// calling thread's default stream.
using StreamHandle = std::uintptr_t;

/// A region to write: `id` is the application's name for it; `data` stays the application's.
struct Source {
  std::uint32_t id = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Where a region is read to; `bytes` must equal what was written under `id`. Targets of one call do not overlap: which
/// bytes are there afterwards is not defined.
struct Target {
  std::uint32_t id = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

struct RegionInfo {
  std::uint32_t id = 0;
  std::size_t bytes = 0;
  std::size_t offset = 0;  ///< from the checkpoint's first byte, also in memory of `reserve` and `borrow`
};

/// A checkpoint's description; its payload is not read.
struct CheckpointInfo {
  std::vector<RegionInfo> regions;
  std::string metadata;                ///< as given to `checkpoint`
  std::uint64_t bytes = 0;             ///< in the store, padding between regions included; of a snapshot: its own
  std::vector<Version> leans_on = {};  ///< ascending: of a snapshot, those whose bytes it needs beside its own
};

/// Called about every 50 ms, by the calling thread and without any lock, while a call waits; true ends the call like a
/// timeout (`timed_out`, nothing consumed). Bindings use it to honour signals. Empty: never called, no cost.
using Interrupt = std::function<bool()>;

/// With a `stream`, the copy runs after what is on the stream already, and later work on it waits for the copy; the
/// host does not wait when the device cache has room. The sources must not change until the stream has passed the copy.
/// Without one the call returns when the bytes are copied, and the sources must be complete by the call, or on the
/// legacy default stream (as with every blocking stream of a GPU). Error unsupported: the store has no GPU, or the
/// stream is being captured into a graph.
struct CheckpointOptions {
  std::string metadata = {};   ///< stored with the regions, opaque
  Seconds timeout{0};          ///< how long to wait for another thread to make room when no transfer can; if it is not
                               ///< 0, also how long to wait for the agent of a node's pool if that is stopped
  Interrupt interrupted = {};  ///< see Interrupt
  std::optional<StreamHandle> stream = {};
  /// Of a checkpoint of one region, in a store with `Options::adopted`: keeps the region's memory alive. The store need
  /// not copy it then: the memory itself is the replica in the device cache, until it is evicted (which takes a copy on
  /// a lower tier) or the version is consumed or dropped. The program must not write to it meanwhile. The store lets go
  /// of this once nothing of its own reads the memory any more, so that later work on `stream` may write to it: on any
  /// thread, without a lock, and before the call returns if the memory was copied after all: beyond `Options::adopted`,
  /// or if it is not on the store's device. A pointer with a deleter of its own makes that a callback.
  std::shared_ptr<const void> adopt = {};
  /// With `adopt`: as HandBack::check, for memory that is adopted.
  bool check = false;
  /// With Options::shared_every: this version goes to the shared directory, whatever its number.
  bool to_shared = false;
};

/// With a `stream`, later work on it finds the bytes in the targets, and the targets are overwritten only after what is
/// on it already; the host waits only until every copy is enqueued (not at all if the device cache has the checkpoint).
/// Errors: as CheckpointOptions.
struct RestoreOptions {
  bool keep = false;                        ///< true: the checkpoint is not consumed by this restore
  std::optional<Seconds> timeout = {};      ///< none: as long as it takes
  Interrupt interrupted = {};               ///< not used by `restore_async`
  std::optional<StreamHandle> stream = {};  ///< refused by `restore_async`
  bool some = false;                        ///< true: of a checkpoint, regions without a target are left out
  /// The targets have the bytes of this version: of a snapshot, only the zones that differ are read and written. If
  /// either version is no snapshot, or their memory differs in size, all is restored.
  std::optional<Version> have = {};
};

/// How memory of the device cache is returned. On a GPU it is reused only after the present work of `stream` (none: of
/// the legacy default stream) is done.
struct HandBack {
  std::optional<StreamHandle> stream = {};
  /// The memory stays mapped and is not reused before the handle is destroyed: other objects may still refer to it.
  bool hold = false;
  /// For a commit only: a digest of the memory is computed, in stream order, and compared at each flush (before and
  /// after), restore and borrow from it. If the memory was written to after the commit, these fail with `damaged`,
  /// which names the version; the checkpoint is never reported durable, and waits for all checkpoints fail. Cost: the
  /// memory is read once more at commit and at each comparison, twice by a flush (on a GPU by a kernel, at memory
  /// bandwidth; in ordinary memory by the calling thread); a restore or borrow waits for its stream. Error unsupported:
  /// a GPU, in a build without nvcc.
  bool check = false;
};

}  // namespace ebb
