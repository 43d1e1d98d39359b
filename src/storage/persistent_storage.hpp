#pragma once
// Storage that outlives the process: the checkpoints of a store's directory, in segment files (docs/format.md).
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "os/clock.hpp"
#include "os/files.hpp"
#include "planner/sync_rule.hpp"
#include "storage/format/record.hpp"
#include "storage/storage.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

/// Something on the disk differs from what was written.
struct Damage {
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::string what;         // a sentence: which record, if it is known, and what is wrong
  bool unreadable = false;  // the disk could not read it; the next time it may
};

/// A checkpoint that an earlier process wrote or, in a read-only store, that another process has added.
struct Found {
  ObjectId object = 0;
  std::string history;
  Version version = 0;
  std::uint64_t bytes = 0;     // of the payload
  std::uint64_t sequence = 0;  // of its record: no other record of the store has it
  Checksum body{};             // of its regions, metadata and their checksums: equal in every copy of the same bytes
};

/// The record of a checkpoint that was dropped.
struct Gone {
  Checksum history{};  // of its name
  Version version = 0;
  std::uint64_t sequence = 0;
  Checksum body{};  // as in Found
};

/// The lowest id for an object of the caller's; objects found on disk have lower ids.
inline constexpr ObjectId kFirstObject = ObjectId{1} << 62;

struct PersistentOptions {
  std::filesystem::path directory;
  std::string prefix = {};     // of every history's name in the files, where callers do not see it. A readonly store
                               // knows no other records
  std::uint64_t capacity = 0;  // payload bytes, rounded down to 4096; includes what is already there
  bool synced = true;          // persistent means synced to stable storage; false: handed to the operating system.
                               // A store keeps the level it was created with; see level()
  bool readonly = false;       // writes nothing and takes no lock; the level is the store's own
  bool paired = false;         // another directory may have the same versions: gone() is asked for
  bool direct = true;
  // Heads are written with the payload, and say so: see surviving().
  bool early_heads = false;
  bool checksums = true;                 // of payloads; off only to measure their cost: none are written or checked
  std::uint32_t block_bytes = 64 << 10;  // of payload per checksum; put() takes multiples of this
  std::uint64_t segment_bytes = 256ull << 20;  // a segment is closed when the next record would exceed this
  std::chrono::nanoseconds sync_interval{planner::kSyncInterval};  // between syncs, unless commit() is called
  transfer::FileEngineOptions engine;
};

/// Called once for each object that begin() accepted, unless it was dropped first: the object is persistent, or why it
/// never will be. Runs on a thread of the storage, with no lock held, and may call anything but stop().
using Persisted = std::function<void(ObjectId, const Result<void>&)>;
/// Called at most once for a get(), before its `done`: the bytes have been read but not checked yet. Runs on the thread
/// that reaps I/O completions, with no lock held, so it must be quick.
using BytesRead = std::function<void(Token)>;

/// Called when drops have been carried out: unreleased() is less. On a thread of the storage, with no lock held.
using DropsReleased = std::function<void()>;

/// Thread safety: as Storage; `load_description`, `verify`, `refresh` and `damages` from any thread, waiting for the
/// disk.
///
/// An object is put in ranges that begin at a multiple of `block_bytes` and, except for the last, are a multiple of it.
/// Each range is put at least once; a range that failed may be put again. When all have succeeded, the object is
/// committed in the background together with other complete objects: payloads are synced, then headers written (a
/// header marks its record as complete), then headers synced.
/// get() checks a range before `done`; Error damaged names file, offset and checkpoint, and the memory then holds the
/// bytes as read.
class PersistentStorage : public Storage {
 public:
  /// What persistent means in this store.
  Durability level() const override = 0;
  PersistentStorage* persistent() final { return this; }
  /// The store is not used after all: stop() takes it away again if it was made when it was opened. Before the first
  /// begin().
  virtual void unmake() {}
  /// Before the first put() of an object. An object of zero bytes is complete with this. Error no_space, as for put().
  virtual Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) = 0;
  /// The same, and the object is written through the page cache where others go past it, to a segment of its kind: a
  /// put is done when its bytes are copied, so that the memory can be used again at once. A commit puts them on the
  /// disk, and they take memory until then.
  virtual Result<void> begin_cached(ObjectId object, std::shared_ptr<const Description> description) {
    return begin(object, std::move(description));
  }
  /// Commits complete objects now instead of at the end of the interval.
  virtual void commit() = 0;
  /// As drop(), but leaves the record on disk as it is, because its bytes could not be read.
  virtual void abandon(ObjectId object) = 0;
  /// Drops are carried out in the background: how many there were, and how many of them are. A kill undoes none of
  /// those.
  virtual std::uint64_t drops() const = 0;
  virtual std::uint64_t drops_done() const = 0;
  /// Bytes of dropped objects that are on the disk until their drops are carried out, each rounded up to 4096.
  virtual std::uint64_t unreleased() const { return 0; }

  /// The checkpoints on disk when the store was opened, ascending by name and version; of two records of one version,
  /// the newer. Their ids are below kFirstObject.
  virtual std::vector<Found> found() const = 0;
  /// The same, for a caller that asks once, and not beside found(), which may return nothing from then on.
  virtual std::vector<Found> take_found() { return found(); }
  /// Of paired directories: what was dropped, of which there were records on disk when the store was opened.
  virtual std::vector<Gone> gone() const { return {}; }
  /// What gone() told of as done by others is dropped everywhere for good: the next opening is not told of it again.
  /// Before the first begin(). Error io_error.
  virtual Result<void> forget_gone() { return {}; }
  /// Read only: checkpoints that another process has added since, each reported once. If nothing has changed, this
  /// takes three system calls, whatever the size of the store.
  virtual std::vector<Found> refresh() = 0;
  /// Read only: how often refresh() has noticed a change. Checkpoints found before a change may have been dropped.
  virtual std::uint64_t changes_seen() const = 0;
  /// Read only: whether the writing process has dropped the object.
  virtual bool was_dropped(ObjectId object) = 0;
  /// The sequence of a persistent object's record; 0: it has none.
  virtual std::uint64_t sequence(ObjectId object) = 0;
  /// With `early_heads`: the sequence of an object's record if the next process of the running system finds it even
  /// though this one is killed. It then is there without a sync: a loss of power may still take it. 0: it is not so, or
  /// not yet; never so before all of it was put, and always once its last put is done, unless its record is compact.
  virtual std::uint64_t surviving(ObjectId) { return 0; }
  /// Above the sequences of all records that there are, dropped ones too.
  virtual std::uint64_t next_sequence() { return 1; }
  /// Whether every persistent object still has a named file in the directory. Error io_error names those that do not.
  virtual Result<void> check_files_exist() = 0;
  /// Errors: damaged, io_error; unknown_version: the writing process has dropped it.
  virtual Result<std::shared_ptr<const Description>> load_description(ObjectId object) = 0;
  /// Reads and checks the whole payload of a persistent object. Errors as for load_description(); timed_out if `ended`,
  /// called every few MiB, returns true.
  virtual Result<void> verify(ObjectId object, const std::function<bool()>& ended = {}) = 0;
  /// The same, and passes the payload to `sink` from front to back, no byte before its checksum has matched.
  using Sink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;
  virtual Result<void> read_payload(ObjectId object, const Sink& sink) = 0;
  /// The same, and returns the checksum of each region, in order.
  virtual Result<std::vector<Checksum>> region_checksums(ObjectId object) = 0;
  /// Damage found when the store was opened.
  virtual std::vector<Damage> damages() const = 0;
  /// After stop(): names of dropped objects whose records could not be removed, so that the next process will find
  /// them.
  virtual std::vector<std::string> failed_drops() const = 0;
};

/// Creates the store if the directory is missing or empty. Errors: not_a_store (it has other files), invalid_argument
/// (a store of the other level), unsupported (a newer format; `synced` on a file system in memory; no O_DIRECT), in_use
/// (another process writes), not_permitted (another user's; writable by others; a link), no_space, io_error; each names
/// the directory and what to do. `files` and `clock` must outlive the storage.
Result<std::unique_ptr<PersistentStorage>> open_persistent_storage(os::Files& files, os::Clock& clock,
                                                                   const PersistentOptions& options, Done done,
                                                                   Persisted persisted, BytesRead bytes_read = {},
                                                                   DropsReleased released = {});

}  // namespace ebb::storage
