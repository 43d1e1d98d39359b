#pragma once
// One checkpoint: its regions, what is known of it, and how it is written, read and given back.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/units.hpp"

namespace ebb {

using Version = std::int64_t;
/// A stream of the application on the store's GPU: a `cudaStream_t`, or 0 or 1 for the legacy default stream, or 2 for
/// the calling thread's default stream.
using StreamHandle = std::uintptr_t;

/// A region to be written: `id` is the application's name for it, `data` stays the application's.
struct Source {
  std::uint32_t id = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Where a region is read to; `bytes` must equal what was written under `id`.
struct Target {
  std::uint32_t id = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

struct RegionInfo {
  std::uint32_t id = 0;
  std::size_t bytes = 0;
  std::size_t offset = 0;  ///< from the checkpoint's first byte; what `reserve` and `borrow` hand out is laid out so
};

/// What is known of a checkpoint without reading it.
struct CheckpointInfo {
  std::vector<RegionInfo> regions;
  std::string metadata;     ///< as given to `checkpoint`
  std::uint64_t bytes = 0;  ///< in the store, alignment between regions included
};

/// Asked about every 50 ms, by the calling thread and without any lock, while a call waits; true ends the call as a
/// timeout would (`timed_out`, nothing consumed). Bindings use it to honour signals. Empty: never asked, and costs
/// nothing.
using Interrupt = std::function<bool()>;

/// With a `stream`, a checkpoint is copied behind what is on it already, and what comes there later waits for the copy;
/// the host does not wait when the device cache has room. The sources belong to the copy until the stream has passed
/// it. Without one the call returns when the bytes are copied, and its sources must be complete on the legacy default
/// stream or by then (a GPU's blocking streams all are). Error unsupported: the store has no GPU, or the stream is
/// being captured into a graph.
struct CheckpointOptions {
  std::string metadata = {};   ///< kept beside the regions, opaque
  Seconds timeout{0};          ///< how long to wait for another thread to make room once no transfer can
  Interrupt interrupted = {};  ///< see Interrupt
  std::optional<StreamHandle> stream = {};
};

/// With a `stream`, the bytes are in the targets for what comes on it later, and the targets are overwritten only
/// behind what is on it already; the host waits only until every copy is enqueued (at once, if the device cache has the
/// checkpoint). Errors as of CheckpointOptions.
struct RestoreOptions {
  bool keep = false;                        ///< true: the checkpoint is not consumed by this restore
  std::optional<Seconds> timeout = {};      ///< none: as long as it takes
  Interrupt interrupted = {};               ///< see Interrupt (not used by `restore_async`)
  std::optional<StreamHandle> stream = {};  ///< not taken by `restore_async`
};

/// How memory of the device cache is given back. On a GPU it is used again only when `stream` (none: the legacy default
/// stream) has done what is on it now.
struct HandBack {
  std::optional<StreamHandle> stream = {};
  /// The memory stays mapped and is not used again before the handle is destroyed: somebody may still look at it.
  bool hold = false;
  /// Of a commit alone: a digest of the memory is taken, in stream order, and compared before each flush, restore and
  /// borrow from it (at the end of each flush as well). If it was written to after the commit, they fail with
  /// `damaged`, which names the version; it is never reported durable, and waits for everything fail. Costs: the memory
  /// is read once more at commit and at each of these, twice by a flush (on a GPU by a kernel, as fast as it is read
  /// there; in ordinary memory by the calling thread); a restore or borrow waits for its stream. Error unsupported: a
  /// GPU, in a build without nvcc.
  bool check = false;
};

}  // namespace ebb
