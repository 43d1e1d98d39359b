#pragma once
// Storage in VELOC's files: what VELOC wrote is found and read, and VELOC reads what is written.
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/segments/checksum_workers.hpp"
#include "storage/veloc/veloc_file.hpp"
#include "storage/veloc/veloc_mark.hpp"

namespace ebb::storage {

using SharedFile = std::shared_ptr<const os::File>;

/// In such a folder: it is no store of segment files.
inline constexpr const char* kVelocFile = "veloc";
/// The folder of a rank's own files in a directory of VELOC's: VELOC would take a file beside its own for a checkpoint.
std::filesystem::path veloc_own_directory(const std::filesystem::path& directory, int rank);

/// The checkpoints of one rank in a directory of VELOC's files. A file is written in the rank's own folder, synced, and
/// renamed when it is whole, so under its final name it is never partial. A mark in that folder has its checksums,
/// bound to its size and time. A file without a mark is VELOC's (or was copied there), and is believed as it is.
///
/// Whatever is interrupted, the next opening can tell what was meant:
/// - To name a file: a *pending* mark (`<name>-<version>.<object>.mark`) is synced, the file is renamed, then the mark
/// is,
///   to `<name>-<version>`. A pending mark that fits the file is the file's; any other is removed.
/// - To remove one: it is moved back to the own folder (`<name>-<version>.<object>.new`), then the mark is removed,
/// then
///   the file. So a mark whose file is nowhere means that somebody deleted it.
///
/// Thread safety: as PersistentStorage.
/// 1. mutex_ guards the objects and what they consist of, and is held for no I/O. Object::opening guards its file while
///    it is written.
/// 2. movers_ write, sync and read. namer_, a single thread, names and removes files, in the order of calls: the file
///    of a version that was dropped is gone before the version that was written anew gets its name.
/// 3. A file is removed only for the object that named or found it last, and only while it is that very file.
class VelocStorage final : public PersistentStorage {
 public:
  VelocStorage(os::Files& files, PersistentOptions options, int rank, Done done, Persisted persisted);
  ~VelocStorage() override { VelocStorage::stop(); }
  // Second half of construction, because it can fail.
  Result<void> start();

  Durability level() const override { return Durability::storage; }
  void unmake() override { unmade_ = true; }
  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) override;
  Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override;
  Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory, std::size_t bytes) override;
  void drop(ObjectId object) override { forget(object, true); }
  void abandon(ObjectId object) override { forget(object, false); }
  void commit() override {}  // each file is synced as soon as it is whole
  std::uint64_t drops() const override;
  std::uint64_t drops_done() const override;
  std::vector<Found> found() const override { return found_; }
  std::vector<Gone> gone() const override { return gone_; }
  std::vector<Found> refresh() override;
  std::uint64_t changes_seen() const override;
  bool was_dropped(ObjectId object) override;
  std::uint64_t sequence(ObjectId object) override;
  std::uint64_t next_sequence() override;
  Result<void> check_files_exist() override;
  Result<std::shared_ptr<const Description>> load_description(ObjectId object) override;
  Result<void> verify(ObjectId object, const std::function<bool()>& ended) override;
  Result<void> read_payload(ObjectId object, const Sink& sink) override;
  Result<std::vector<Checksum>> region_checksums(ObjectId object) override;
  std::vector<Damage> damages() const override { return damages_; }
  std::vector<std::string> failed_drops() const override;
  StorageUse use() const override;
  std::string describe() const override;
  void stop() override;

 private:
  struct Object;
  using SharedObject = std::shared_ptr<Object>;
  using Path = std::filesystem::path;

  Path path_of(const Object& object) const;
  Path mark_of(const Object& object) const;
  struct Seen {
    SharedObject object;
    Checksum body{};
    bool marked = false;
  };
  struct OwnFiles;
  Result<OwnFiles> list_own() const;
  Result<std::vector<Found>> look(std::vector<Damage>* damages, const OwnFiles& own);
  Result<Seen> find_object(const VelocName& name, const os::FileStatus& status, const OwnFiles& own);
  std::vector<Found> add_found(std::vector<Seen> seen, const std::set<std::string>& there);
  Result<void> settle_interrupted(OwnFiles& own);
  void look_for_deleted(const OwnFiles& own, const std::vector<std::string>& files);
  std::uint64_t unused_sequence(std::uint64_t wanted);
  struct Times {
    std::int64_t directory = 0, own = 0;
    bool operator==(const Times&) const = default;
  };
  Times times() const;

  Result<void> take_room(Object& object);
  Result<SharedFile> open_to_write(Object& object);
  bool count_put(Object& object, std::uint64_t offset, std::size_t bytes, bool there);
  Result<void> finish(Object& object);
  Result<void> write(Object& object, std::uint64_t offset, const std::byte* memory, std::size_t bytes);
  Result<void> read(const SharedObject& object, std::uint64_t offset, std::span<std::byte> memory);
  Result<void> check_blocks(const Object& object, const SharedFile& file, std::uint64_t offset,
                            std::span<const std::byte> memory);
  Result<void> read_extents(const Object& object, const SharedFile& file, std::uint64_t offset,
                            std::span<std::byte> memory);
  Result<SharedFile> open_to_read(const SharedObject& object);
  Result<void> load(Object& object);
  Result<void> read_checked(const SharedObject& object, const Sink& sink, const std::function<bool()>& ended);
  void complete(const SharedObject& object);
  Result<void> give_name(Object& object);
  Result<void> write_mark(const Path& path, const Object& object);
  Result<void> rename(const Path& from, const Path& to);
  void forget(ObjectId id, bool remove);
  void remove_files(const SharedObject& object);
  bool move_back(const Object& object);
  SharedObject find(ObjectId id) const;
  SharedObject must_find(ObjectId id) const;

  os::Files& files_;
  const PersistentOptions options_;
  const int rank_;
  const Path directory_, own_;
  std::optional<StoreDirectory> store_;  // of own_; none: read only
  std::vector<Path> made_;               // directories that this opening has made
  std::vector<Path> orphans_;            // marks of files that somebody deleted
  const Done done_;
  const Persisted persisted_;
  std::vector<Found> found_;  // constant after start(), like gone_ and damages_
  std::vector<Gone> gone_;
  std::vector<Damage> damages_;
  mutable std::mutex mutex_;
  // All below by mutex_.
  std::map<ObjectId, SharedObject> objects_;
  std::map<std::string, ObjectId> named_;  // by file name: the object that named it last
  std::set<std::uint64_t> sequences_;      // of files without a mark
  std::vector<std::string> failed_drops_;
  std::uint64_t used_ = 0, counted_ = 0, drops_ = 0, drops_done_ = 0, changes_ = 0, next_sequence_ = 1;
  ObjectId last_found_ = 0;
  Times looked_;  // of the directories when they were listed last; zeros: they are to be listed again
  bool stopped_ = false, unmade_ = false;
  ChecksumWorkers movers_, namer_{1};
};

/// As open_persistent_storage(), for the checkpoints of `rank` in options.directory. Errors: as there, of the rank's
/// own folder; invalid_argument (a rank below 0).
Result<std::unique_ptr<PersistentStorage>> open_veloc_storage(os::Files& files, const PersistentOptions& options,
                                                              int rank, Done done, Persisted persisted);

}  // namespace ebb::storage
