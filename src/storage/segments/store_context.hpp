#pragma once
// What the parts of a segment store share besides the table: files, options, callbacks and threads.
#include <string>

#include "os/boot.hpp"
#include "os/clock.hpp"
#include "os/files.hpp"
#include "storage/persistent_storage.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/segments/checksum_workers.hpp"
#include "storage/segments/file_transfers.hpp"
#include "storage/segments/segment_files.hpp"

namespace ebb::storage {

/// Thread safety: constant once the store is open; `segment_files`, `transfers` and `workers` have their own locks.
struct StoreContext {
  os::Files& files;
  os::Clock& clock;
  const PersistentOptions options;
  const StoreDirectory directory;
  const std::string where;  // "the directory '/scratch' (ext4)"
  const Done done;
  const Persisted persisted;
  const BytesRead bytes_read;
  const DropsReleased released;
  SegmentFiles segment_files{files, directory, options.direct, options.readonly};
  FileTransfers transfers{};
  ChecksumWorkers workers{};  // from the start of the store on

  /// Of heads that are written before a sync; zeros: there are none.
  const Uuid boot = options.early_heads && options.synced ? os::boot_id(files) : Uuid{};

  /// Syncs a segment's file, unless the store does not sync. Error io_error names it.
  Result<void> sync(std::uint64_t segment, const os::File& file) {
    if (!options.synced) return {};
    const auto synced = files.sync(file.fd());
    if (synced) return {};
    return file_error(segment_files.path(segment), "syncing it", synced.error);
  }
};

}  // namespace ebb::storage
