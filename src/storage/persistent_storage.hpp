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
#include "storage/format/record.hpp"
#include "storage/storage.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

/// Something on the disk is not as it was written.
struct Damage {
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::string what;         // a sentence: which record, if it is known, and what is wrong
  bool unreadable = false;  // the disk could not read it; the next time it may
};

/// A checkpoint that an earlier process left, or (read only) another is adding.
struct Found {
  ObjectId object = 0;
  std::string history;
  Version version = 0;
  std::uint64_t bytes = 0;  // of the payload
};

/// Where the ids of a caller's own objects begin; found ones have those below.
inline constexpr ObjectId kFirstObject = ObjectId{1} << 62;

struct PersistentOptions {
  std::filesystem::path directory;
  std::uint64_t capacity = 0;  // bytes that put() takes, rounded down to 4096; what is there counts
  bool synced = true;          // kept means on stable storage; false: handed to the operating system. The store
                               // is of the one level or the other for ever; see level()
  bool readonly = false;       // nothing is written, no lock taken, and the store's own level holds
  bool direct = true;
  bool checksums = true;                 // of payloads; off, to measure what they cost: none written, none checked
  std::uint32_t block_bytes = 64 << 10;  // of payload under one checksum: what put() is called with is a multiple
  std::uint64_t segment_bytes = 256ull << 20;  // a segment is closed when the next record would make it longer
  std::chrono::nanoseconds sync_interval = std::chrono::milliseconds(100);  // nobody waits: this long between syncs
  transfer::FileEngineOptions engine;
};

/// Told once for each object that begin() took, unless it was dropped first: it is kept as PersistentOptions says, or
/// why it never will be. On a thread of the storage's, with no lock held. It may call everything but stop().
using Persisted = std::function<void(ObjectId, const Result<void>&)>;
/// Told at most once of a get(), before its `done`: its bytes are read, and are still to be checked. On the thread that
/// reaps what the disk has done, with no lock held: until it returns nothing else is.
using BytesRead = std::function<void(Token)>;

/// Thread safety: as Storage; `load_description`, `verify`, `refresh` and `damages` from any thread, waiting for the
/// disk.
///
/// An object is put in ranges, each a multiple of `block_bytes` from a multiple of it (but for the end), all of them
/// once at least; a range that failed may be put again. When all have been reported well it is committed in the
/// background, together with what else is complete then: payloads synced, then headers written (a header is the mark
/// that its record is complete), then those synced.
/// A range that get() read is checked before `done`; Error damaged names file, offset and checkpoint, and the memory
/// then holds what was read.
class PersistentStorage : public Storage {
 public:
  /// Before the first put() of an object. An object of no bytes is complete with this. Error no_space, as of put().
  virtual Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) = 0;
  /// What is complete is committed now, and not at the end of the interval.
  virtual void commit() = 0;
  /// Leaves an object alone for good, as it is on the disk: its bytes could not be read. Otherwise as drop().
  virtual void abandon(ObjectId object) = 0;

  /// What kept means in this store.
  virtual Durability level() const = 0;

  /// What was there when it was opened; of two with one name the newer, ascending by name and version. Their ids are
  /// below kFirstObject.
  virtual std::vector<Found> found() const = 0;
  /// Read only: what another process has added since. Never anything twice. Where nothing has changed this takes three
  /// calls of the system, however much is there.
  virtual std::vector<Found> refresh() = 0;
  /// Read only: how many times refresh() found that something had changed. What was found before may be gone since
  /// then.
  virtual std::uint64_t changes_seen() const = 0;
  /// Read only: whether the process that writes has dropped it.
  virtual bool was_dropped(ObjectId object) = 0;
  /// Whether all that was reported kept has a name in the directory still. Error io_error names what has not.
  virtual Result<void> check_files_exist() = 0;
  /// Errors: damaged, io_error; unknown_version: dropped meanwhile by the process that writes.
  virtual Result<std::shared_ptr<const Description>> load_description(ObjectId object) = 0;
  /// Reads all of a kept object's payload and checks it. Errors as of read(); timed_out if `ended`, which is asked
  /// between pieces of some MiB, said true.
  virtual Result<void> verify(ObjectId object, const std::function<bool()>& ended = {}) = 0;
  /// The same, and hands it out from front to back; no byte before its checksum held.
  using Sink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;
  virtual Result<void> read_payload(ObjectId object, const Sink& sink) = 0;
  /// The same, and the checksum of each of its regions, in their order.
  virtual Result<std::vector<Checksum>> region_checksums(ObjectId object) = 0;
  /// What was not as it should be when it was opened.
  virtual std::vector<Damage> damages() const = 0;
  /// After stop(): what was dropped and could not be taken from the files, so that the next process finds it. By name.
  virtual std::vector<std::string> failed_drops() const = 0;
};

/// Makes the directory a store if it is not there or empty. Errors: not_a_store (there are other files in it),
/// invalid_argument (a store of the other level),
/// unsupported (of a newer format; in memory, for `synced`; no O_DIRECT), in_use (another process writes),
/// not_permitted (somebody else's; others may write there; a link), no_space, io_error; each names the directory and
/// what to do. `files` and `clock` must outlive it.
Result<std::unique_ptr<PersistentStorage>> open_persistent_storage(platform::Files& files, platform::Clock& clock,
                                                                   const PersistentOptions& options, Done done,
                                                                   Persisted persisted, BytesRead bytes_read = {});

}  // namespace ebb::storage
