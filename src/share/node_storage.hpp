#pragma once
// A process's side of the store that the agent of its pool owns: the interface of a persistent storage.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/clock.hpp"
#include "os/files.hpp"
#include "os/local_socket.hpp"
#include "os/shared_memory.hpp"
#include "share/lease_source.hpp"
#include "share/pool/pool_header.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::share {

/// What the processes of a node meet in. Tests put doubles, or other directories, here.
struct NodeSeams {
  std::shared_ptr<os::SharedMemory> memory;
  std::shared_ptr<os::LocalSockets> sockets;
  std::vector<std::filesystem::path> queue_directories;  // of the queue of the node's processes
  static NodeSeams usual();
};

struct PoolOptions {
  std::string job;           // job_identity()
  std::uint64_t rank = 0;    // in the job; no other process of the pool has it. Histories are kept as "<rank>/<name>"
  std::uint64_t ranks = 1;   // processes of this job on this node: each is sure of budget / ranks
  std::uint64_t budget = 0;  // bytes
  std::uint64_t chunk_bytes = kDefaultChunk;
  bool program = true;   // the agent is `ebbtide-agent`, if that is installed; false: a thread of one of the processes
  bool overflow = true;  // what has no room in the pool goes through the page cache
};

struct NodeCounters {
  std::uint64_t bytes_handed_over = 0, bytes_written = 0;
  std::uint64_t objects_handed_over = 0, objects_written = 0;
  std::uint64_t agents = 0;          // that this process has been connected to, one after the other
  bool program = false;              // the present one is a program of its own
  std::uint64_t bytes_borrowed = 0;  // now, of other processes' shares
  std::uint64_t bytes_beside = 0;    // now, of the whole pool: PoolProgress::beside
};

/// Called with true when an object is complete in the pool's list: it survives this process, and the agent. Called with
/// false, before anything else is said of it, if it is in the list no more and is not durable: its write failed. Runs
/// on a thread of the storage, or on the one that called put(), and must not call the storage.
using Listed = std::function<void(storage::ObjectId, bool listed)>;
/// Called on a thread of the storage each time that an object of the list could not be written, and why. It stays in
/// the list and is tried again until it is durable, or withdrawn; its last transfer goes on meanwhile.
using Delayed = std::function<void(storage::ObjectId, const Error&)>;

/// A process's share of a pool, and what it borrows of others' shares.
/// Thread safety: every method may be called from any thread.
class NodeMemory : public LeaseSource {
 public:
  /// One range of addresses, that are valid as long as the pointer (or a copy) is held. Bytes must not be touched
  /// before claim() said so.
  virtual std::shared_ptr<std::byte> cache_memory() const = 0;
  /// Gives the cache memory before `end` pages of the pool. Error no_space: shared memory is full; closed: there is no
  /// agent, and none can be started.
  virtual Result<void> claim(std::uint64_t end) = 0;
  /// Those of memory alone.
  virtual NodeCounters counters() const = 0;
  /// Says which agent does not answer since its process is stopped. Nothing is lost meanwhile.
  virtual std::optional<std::string> stopped_agent() const = 0;
  virtual std::string describe() const = 0;

  // Leases are parts of other processes' shares. The process takes them once it needs more than its own.
};

/// What put() is given is handed over to the agent, which writes it; no byte is copied if it is in memory(). Reads go
/// to the segment files themselves.
class NodeStorage : public storage::PersistentStorage {
 public:
  virtual NodeMemory& memory() = 0;
  virtual NodeCounters counters() const = 0;
  /// What was put of the object is not needed any more, and may be under way still: a transfer that is held up ends.
  /// drop() follows. Nothing to do for one that is durable, or unknown.
  virtual void withdraw(storage::ObjectId object) = 0;
  /// The caller ends. What the disk refuses stays in the pool, and its transfers end with that error.
  virtual void leave() = 0;
};

struct NodeStorageOptions {
  PoolOptions pool;
  storage::PersistentOptions store;     // as the agent opens it; `readonly` is false
  std::uint64_t piece_bytes = 4 << 20;  // the longest put() of memory that is not the pool's
};

/// Joins the pool of its job, starts an agent if there is none, and waits until what dead processes of the job left is
/// in the store. Errors: invalid_argument (a pool below two chunks a process; another budget, chunk or directory than
/// the pool has; all shares taken), in_use (the rank is taken; an agent of another job owns the store), unsupported
/// (an agent of another version), and those of open_persistent_storage().
Result<std::unique_ptr<NodeStorage>> open_node_storage(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                       const NodeStorageOptions& options, storage::Done done,
                                                       storage::Persisted persisted, Listed listed, Delayed delayed,
                                                       storage::BytesRead bytes_read = {});

/// The same without a store, for processes whose checkpoints end with them: memory alone.
Result<std::unique_ptr<NodeMemory>> open_node_memory(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                     const PoolOptions& options);

}  // namespace ebb::share
