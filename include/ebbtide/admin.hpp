#pragma once
// Lists, verifies, reads and tidies a persistent store's directory without opening the store: the commands `ebbtide
// ls`, `verify`, `export` and `gc`. docs/commands.md says what each of them guarantees.
//
//   auto store = ebb::admin::ls("run-7").value();
//   for (const auto& one : store.checkpoints) std::cout << one.history << " " << one.version << "\n";
//   for (const auto& verdict : ebb::admin::verify(store))
//     if (verdict.kind != ebb::admin::Verdict::Kind::intact) std::cerr << verdict.damage.what << "\n";
//   ebb::admin::gc("run-7", {.keep_last = 3}).value();
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "ebbtide/options.hpp"

namespace ebb::admin {

/// A damaged place in a store, and the checkpoint there, if intact data still names it.
struct Damage {
  std::filesystem::path file;
  std::uint64_t offset = 0;  ///< in `file`
  std::string what;          ///< a sentence; it may quote a history's name, which may be any bytes
  std::optional<std::string> history = {};
  std::optional<Version> version = {};
};

/// A checkpoint with an intact header; its payload was not read.
struct Checkpoint {
  std::string history;
  Version version = 0;
  std::uint64_t bytes = 0;  ///< of the payload
  std::uint32_t regions = 0;
  std::chrono::sys_time<std::chrono::nanoseconds> written = {};  ///< by the writer's clock
  std::filesystem::path file;                                    ///< its name in the directory
  std::uint64_t offset = 0;                                      ///< in `file`
  std::uint64_t record_bytes = 0;                                ///< in `file`: header, payload and padding
  std::uint64_t sequence = 0;  ///< of the records of one history and version the highest counts
  bool superseded = false;     ///< a record with a higher sequence, live or dropped, takes its place
  bool shared = false;         ///< it is in Listing::shared, and `file` there
  bool copy = false;           ///< in Listing::shared, of what Listing::directory has as well
};

/// The bytes of one segment file. Those from `live` to `unused` add up to `bytes`, except for dropped records past the
/// end of the file.
struct SegmentUse {
  std::uint64_t segment = 0;        ///< its number
  std::filesystem::path file = {};  ///< its name in the directory
  std::uint64_t bytes = 0;          ///< length of the file
  std::uint64_t allocated = 0;      ///< on the disk
  std::uint64_t checkpoints = 0;    ///< how many are not superseded
  std::uint64_t live = 0;           ///< bytes of these
  std::uint64_t superseded = 0;
  std::uint64_t dropped = 0;  ///< dropped records, and abandoned space
  std::uint64_t gaps = 0;     ///< allocated for records that were never finished
  std::uint64_t damaged = 0;
  std::uint64_t unused = 0;  ///< after the last record
};

struct Scan;

/// The contents of a store's directory.
struct Listing {
  std::filesystem::path directory;  ///< absolute; what follows is about it, unless it says otherwise
  std::filesystem::path shared;     ///< of which it is a cache, absolute; empty: none was named
  std::array<std::byte, 16> id{};   ///< of the store
  std::uint32_t format = 0;         ///< the newest of its records (docs/format.md)
  Durability durability = Durability::storage;
  std::uint64_t owner = 0;  ///< the user id of its creator
  std::chrono::sys_time<std::chrono::nanoseconds> created = {};
  bool index = false;                   ///< it has a valid index
  std::vector<Checkpoint> checkpoints;  ///< ascending by history and version; superseded ones after the valid one; then
                                        ///< those of `shared`
  std::vector<SegmentUse> segments;     ///< ascending by number
  std::vector<Damage> damages;          ///< also of `shared`
  std::vector<std::string> left_over;   ///< files left by a crash; ignored
  std::vector<std::string> others;      ///< files that do not belong to the store
  std::shared_ptr<const Scan> scan;     ///< for `verify` and `read`
};

/// Reads every header and the index, and compares them; no payload. Writes nothing and takes no lock: another process
/// may be writing. Errors: not_a_store, unsupported (a newer format), not_permitted, io_error, damaged (the file
/// `store` itself). `shared`: the shared directory of the same store, if it is to be read too.
Result<Listing> ls(const std::filesystem::path& directory, const std::filesystem::path& shared = {});

/// Called with the number of bytes just read, on any of the reading threads; false makes the reading stop soon.
using Progress = std::function<bool(std::uint64_t bytes)>;

struct ReadOptions {
  unsigned threads = 0;  ///< for reading; 0: as many as the process may use, up to four
  Progress progress = {};
};

struct Verdict {
  enum class Kind {
    intact,
    damaged,
    unreadable,  ///< the system failed to read it
    gone,        ///< dropped since `ls`
    unknown      ///< `progress` stopped the reading first
  } kind = Kind::unknown;
  Damage damage;  ///< if damaged or unreadable; otherwise it only names the checkpoint
};

/// Reads and checks every byte of the checkpoints listed: one verdict each, in the same order. A snapshot is damaged if
/// its map is, or a piece that the map names.
std::vector<Verdict> verify(const Listing& listing, const ReadOptions& options = {});

/// One checkpoint, read piece by piece; no byte is returned before its checksum was checked. Move-only.
/// Thread safety: one thread at a time.
///
///   auto reader = ebb::admin::read(listing, 0).value();
///   for (auto piece = reader.next().value(); !piece.empty(); piece = reader.next().value()) write(piece);
class CheckpointReader {
 public:
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();
  /// The record's regions, and the metadata that it was written with. Of a snapshot as the store says it: the program's
  /// regions, which next() gives one after the other, and what it leans on.
  const CheckpointInfo& info() const;
  bool is_snapshot() const;
  /// The payload's next bytes, some MiB; none at the end. Valid until the next call. Errors: damaged; unknown_version
  /// (dropped since `ls`); io_error. Each names file, offset and checkpoint.
  Result<std::span<const std::byte>> next();
  /// The last error of next(), and its place.
  Damage trouble() const;

 private:
  friend Result<CheckpointReader> read(const Listing& listing, std::size_t index);
  struct Impl;
  explicit CheckpointReader(std::unique_ptr<Impl> state);
  std::unique_ptr<Impl> state_;
};

/// Opens `listing.checkpoints[index]` for reading and checks its header; of a snapshot, its map. Errors: as of
/// CheckpointReader::next(); invalid_argument (no such index).
Result<CheckpointReader> read(const Listing& listing, std::size_t index);

struct GcOptions {
  /// As in Options; only versions that were read and found intact count as kept.
  std::uint64_t keep_last = 0, keep_every = 0;
  /// Beginnings of the names of histories that `keep_last` does not count in: several of them belong together.
  std::vector<std::string> apart = {};
  std::vector<std::string> retired = {};  ///< histories of which every version is removed
  bool damaged = false;                   ///< remove damaged checkpoints too; every payload is read to find them
  bool dry_run = false;                   ///< change nothing
  unsigned threads = 0;                   ///< for reading; 0: as in ReadOptions
  Progress progress = {};                 ///< of payloads that are read
};

/// A checkpoint, or an incomplete one, and why it is removed.
struct Removal {
  enum class Why {
    superseded,
    retention,
    damaged,
    unfinished  ///< of a file that was never closed, or of a snapshot that is not there (or goes as well)
  } why = Why::superseded;
  std::optional<std::string> history;
  std::optional<Version> version;
  std::filesystem::path file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< in the file
};

/// An ended snapshot of which live ones needed less than half: that was packed anew, and the rest is gone.
struct Repacked {
  std::string history;
  Version version = 0;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::size_t needed_by = 0;  ///< live snapshots
  std::string failed = {};    ///< why it was not; empty: it was
};
struct Collected {
  std::vector<Removal> removals;
  std::vector<Repacked> repacked;
  std::vector<Damage> damages;                  ///< known damage that remains
  std::vector<std::filesystem::path> segments;  ///< files that were removed
  std::uint64_t left_over_files = 0;            ///< removed: files left by a crash
  /// Bytes on the disk of all segments; after a dry run, `after` is the most that would be left.
  std::uint64_t allocated_before = 0, allocated_after = 0;
  bool ended = false;  ///< `progress` stopped it: nothing was changed
};

/// Frees the disk space of checkpoints that can never be restored. Takes the writer's lock; a crash at any moment
/// leaves all other checkpoints intact. Errors: those of `ls`, in_use (a process has the store open for writing),
/// no_space.
Result<Collected> gc(const std::filesystem::path& directory, const GcOptions& options = {});

/// Of a history's intact versions, ascending: those that `keep_last` and `keep_every` keep.
std::vector<Version> retained(std::span<const Version> versions, std::uint64_t keep_last, std::uint64_t keep_every);

}  // namespace ebb::admin
