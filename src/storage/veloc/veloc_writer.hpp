#pragma once
// Writing checkpoints to VELOC's files, in a rank's own folder: they get their names from VelocNamer.
#include <memory>
#include <span>

#include "storage/persistent_storage.hpp"
#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_objects.hpp"
#include "storage/veloc/veloc_sums.hpp"

namespace ebb::storage {

/// Thread safety: every method from any thread, waiting for the disk; finish() once for an object.
class VelocWriter {
 public:
  VelocWriter(const VelocFolders& folders, const VelocSums& sums, VelocObjects& objects, std::uint32_t block_bytes,
              bool checksums)
      : folders_(folders),
        sums_(sums),
        objects_(objects),
        files_(folders.files()),
        block_bytes_(block_bytes),
        checksums_(checksums) {}
  SharedVelocObject make(ObjectId id, std::shared_ptr<const Description> description) const;
  /// True: all of the object is there for the first time, and synced.
  Result<bool> put(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// All bytes are written: now the table of regions, and all of it is synced and, for a checksum file, summed. The
  /// descriptor is closed before the last put is reported, so that files do not pile up that wait for their names.
  Result<void> finish(VelocObject& object) const;

 private:
  Result<SharedFile> open(VelocObject& object) const;
  Result<void> write(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const;
  void sum(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const;
  bool count(VelocObject& object, std::uint64_t offset, std::size_t bytes, bool there) const;

  const VelocFolders& folders_;
  const VelocSums& sums_;
  VelocObjects& objects_;
  os::Files& files_;
  const std::uint32_t block_bytes_;
  const bool checksums_;
};

}  // namespace ebb::storage
