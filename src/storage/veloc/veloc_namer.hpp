#pragma once
// Naming and removing VELOC's files.
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/segments/checksum_workers.hpp"
#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_objects.hpp"
#include "storage/veloc/veloc_reader.hpp"
#include "storage/veloc/veloc_writer.hpp"

namespace ebb::storage {

/// Thread safety: every method from any thread; stop() from one.
/// 1. thread_, a single thread, names and removes files, in the order of calls: the file of a version that was dropped
///    is gone before the version that was written anew gets its name.
/// 2. A file is removed only for the object that named or found it last, and only while it is that very file.
/// 3. mutex_ guards what is said of drops, and may be taken with the objects' lock held.
class VelocNamer {
 public:
  /// `block_bytes`: of a mark's checksums.
  VelocNamer(const VelocFolders& folders, const VelocSums& sums, VelocObjects& objects, const VelocWriter& writer,
             const VelocReader& reader, std::uint32_t block_bytes, Persisted persisted)
      : folders_(folders),
        sums_(sums),
        objects_(objects),
        writer_(writer),
        reader_(reader),
        files_(folders.files()),
        block_bytes_(block_bytes),
        persisted_(std::move(persisted)) {}
  /// Names an object all of which is there, and reports it.
  void complete(const SharedVelocObject& object);
  /// Names what an earlier process left waiting for a name that is free.
  void name_waiting();
  /// `remove`: its file too, if it has a name; one without is removed in any case.
  void forget(ObjectId id, bool remove);
  std::uint64_t drops() const;
  std::uint64_t drops_done() const;
  std::vector<std::string> failed_drops() const;
  /// Ends once all of that is done.
  void stop() { thread_.stop(); }

 private:
  using Path = std::filesystem::path;
  void name(VelocObject& object);
  Result<void> give_name(VelocObject& object);
  Result<void> await_name(VelocObject& object);
  Result<void> take_name(VelocObject& object);
  Result<void> write_mark(const Path& path, const VelocObject& object);
  void remove_files(VelocObject& object);
  Result<void> take_name_of_found(const SharedVelocObject& object);
  bool replace(const VelocObject& object, const SharedVelocObject& next);
  bool remove_waiting(const VelocObject& object);
  bool move_back(const VelocObject& object);

  const VelocFolders& folders_;
  const VelocSums& sums_;
  VelocObjects& objects_;
  const VelocWriter& writer_;
  const VelocReader& reader_;
  os::Files& files_;
  const std::uint32_t block_bytes_;
  const Persisted persisted_;
  mutable std::mutex mutex_;
  std::vector<std::string> failed_drops_;
  std::uint64_t drops_ = 0, drops_done_ = 0;
  ChecksumWorkers thread_{1};
};

}  // namespace ebb::storage
