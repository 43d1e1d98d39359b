#pragma once
// Reading and checking checkpoints in VELOC's files.
#include <functional>
#include <span>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_objects.hpp"
#include "storage/veloc/veloc_sums.hpp"

namespace ebb::storage {

/// Thread safety: every method from any thread, waiting for the disk.
class VelocReader {
 public:
  VelocReader(const VelocFolders& folders, const VelocSums& sums, VelocObjects& objects, std::uint32_t block_bytes)
      : folders_(folders), sums_(sums), objects_(objects), files_(folders.files()), block_bytes_(block_bytes) {}
  /// The object's mark, of which only the beginning was read when it was found.
  Result<void> load(VelocObject& object) const;
  Result<void> read(const SharedVelocObject& object, std::uint64_t offset, std::span<std::byte> memory) const;
  /// From front to back; as PersistentStorage::verify() and read_payload().
  Result<void> read_all(const SharedVelocObject& object, const PersistentStorage::Sink& sink,
                        const std::function<bool()>& ended) const;
  Result<std::vector<Checksum>> region_checksums(const SharedVelocObject& object) const;

 private:
  Result<void> check_blocks(const VelocObject& object, const SharedFile& file, std::uint64_t offset,
                            std::span<const std::byte> memory) const;
  Result<void> read_extents(const VelocObject& object, const SharedFile& file, std::uint64_t offset,
                            std::span<std::byte> memory) const;
  Result<SharedFile> open_to_read(const SharedVelocObject& object) const;
  Result<void> check_sum(VelocObject& object, const os::File& file) const;

  const VelocFolders& folders_;
  const VelocSums& sums_;
  VelocObjects& objects_;
  os::Files& files_;
  const std::uint32_t block_bytes_;
};

}  // namespace ebb::storage
