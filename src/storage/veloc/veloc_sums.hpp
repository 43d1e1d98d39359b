#pragma once
// VELOC's checksum files: 32 bytes of SHA-256 of a whole data file, in `<meta>/<data file>.chksum`.
#include <cstdint>
#include <filesystem>
#include <string>

#include "os/files.hpp"
#include "storage/veloc/sha256.hpp"
#include "storage/veloc/veloc_file.hpp"
#include "storage/veloc/veloc_of.hpp"

namespace ebb::storage {

/// Thread safety: every method from any thread, waiting for the disk; write() and remove() from one at a time.
class VelocSums {
 public:
  VelocSums(os::Files& files, const VelocOf& of)
      : files_(files),
        wanted_(of.sums),
        rank_(of.rank),
        directory_(of.meta),
        part_(of.meta / (".ebbtide-chksum-" + std::to_string(of.rank))) {}
  bool wanted() const { return wanted_; }
  /// Makes the directory, synced, unless `readonly`, and tries whether sums can be made.
  Result<void> make(bool readonly) const;
  /// Of a part of an open file.
  Result<Sha256Sum> sum_of(const os::File& file, const VelocPart& part) const;
  /// By one rename, synced.
  Result<void> write(const VelocName& name, const Sha256Sum& sum) const;
  /// Error damaged: the rank's part of the open file does not match its checksum file, or `needed`, and it has none.
  Result<void> check(const VelocName& name, const os::File& file, const VelocPart& part, bool needed) const;
  /// Synced, also where no sums are wanted: whatever gets this name does not have this sum. Nothing, if there is none.
  Result<void> remove(const VelocName& name) const;

 private:
  std::filesystem::path path_of(const VelocName& name) const;
  Result<void> sync(const std::filesystem::path& directory) const;

  os::Files& files_;
  const bool wanted_;
  const int rank_;
  const std::filesystem::path directory_, part_;  // VELOC takes no such name for a checkpoint's
};

}  // namespace ebb::storage
