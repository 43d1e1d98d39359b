#pragma once
// Storage in VELOC's files: what VELOC wrote is found and read, and VELOC reads what is written.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/segments/checksum_workers.hpp"
#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_namer.hpp"
#include "storage/veloc/veloc_objects.hpp"
#include "storage/veloc/veloc_of.hpp"
#include "storage/veloc/veloc_reader.hpp"
#include "storage/veloc/veloc_search.hpp"
#include "storage/veloc/veloc_sums.hpp"
#include "storage/veloc/veloc_writer.hpp"

namespace ebb::storage {

/// The checkpoints of one rank in a directory of VELOC's files. A file is written in the rank's own folder, synced, and
/// renamed when it is whole, so under its final name it is never partial. A mark in that folder has its checksums,
/// bound to its size and time. A file without a mark is VELOC's (or was copied there), and is believed as it is.
///
/// Whatever is interrupted, the next opening can tell what was meant:
/// - To name a file: a *pending* mark (`<name>-<version>.<object>.mark`) is synced, the file is renamed, then the mark
///   is, to `<name>-<version>`. A pending mark that fits the file is the file's; any other is removed.
/// - To name a newer edition of a version (kVelocEdition): the same, but the file gets a name in the own folder
///   (`<name>-<version>.next`). It takes the final name, by one rename, when what had that is dropped. A mark there
///   that nothing fits any more is of that older edition, which counts as dropped.
/// - To remove one: it is moved back to the own folder (`<name>-<version>.<object>.new`), then the mark is removed,
///   then the file. So a mark whose file is nowhere means that somebody deleted it. Such marks are removed once no copy
///   elsewhere can come back, and before anything is written anew.
///
/// Thread safety: as PersistentStorage. movers_ write, sync and read; VelocNamer's thread names and removes; the rest
/// is constant after start().
class VelocStorage final : public PersistentStorage {
 public:
  VelocStorage(os::Files& files, PersistentOptions options, const VelocOf& of, Done done, Persisted persisted);
  ~VelocStorage() override { VelocStorage::stop(); }
  // Second half of construction, because it can fail.
  Result<void> start();

  Durability level() const override { return Durability::storage; }
  void unmake() override { unmade_ = true; }
  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) override;
  Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override;
  Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory, std::size_t bytes) override;
  void drop(ObjectId object) override { namer_.forget(object, true); }
  void abandon(ObjectId object) override { namer_.forget(object, false); }
  void commit() override {}  // each file is synced as soon as it is whole
  std::uint64_t drops() const override { return namer_.drops(); }
  std::uint64_t drops_done() const override { return namer_.drops_done(); }
  std::vector<Found> found() const override { return found_; }
  std::vector<Gone> gone() const override { return gone_; }
  Result<void> forget_gone() override;
  std::vector<Found> refresh() override;
  std::uint64_t changes_seen() const override { return objects_.changes(); }
  bool was_dropped(ObjectId object) override;
  std::uint64_t sequence(ObjectId object) override { return objects_.sequence(object); }
  std::uint64_t next_sequence() override { return objects_.next_sequence(); }
  // Files that somebody deletes are gone, and that is right; the directories are ours.
  Result<void> check_files_exist() override { return folders_.in_place(); }
  Result<std::shared_ptr<const Description>> load_description(ObjectId object) override;
  Result<void> verify(ObjectId object, const std::function<bool()>& ended) override;
  Result<void> read_payload(ObjectId object, const Sink& sink) override;
  Result<std::vector<Checksum>> region_checksums(ObjectId object) override;
  std::vector<Damage> damages() const override { return damages_; }
  std::vector<std::string> failed_drops() const override { return namer_.failed_drops(); }
  StorageUse use() const override { return objects_.use(); }
  std::string describe() const override;
  void stop() override;

 private:
  os::Files& files_;
  const PersistentOptions options_;
  const Done done_;
  VelocFolders folders_;
  VelocSums sums_;
  VelocObjects objects_;
  VelocWriter writer_;
  VelocReader reader_;
  VelocNamer namer_;
  std::vector<std::filesystem::path> orphans_;  // marks of files that somebody deleted
  std::vector<Found> found_;
  std::vector<Gone> gone_;
  std::vector<Damage> damages_;
  bool unmade_ = false;
  ChecksumWorkers movers_;
};

/// As open_persistent_storage(), for the checkpoints of a rank in options.directory. Errors: as there, of the rank's
/// own folder; invalid_argument (a rank below 0), unsupported (checksum files, without libcrypto).
Result<std::unique_ptr<PersistentStorage>> open_veloc_storage(os::Files& files, const PersistentOptions& options,
                                                              const VelocOf& of, Done done, Persisted persisted);

}  // namespace ebb::storage
