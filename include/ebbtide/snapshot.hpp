#pragma once
// Snapshots of memory that the program goes on writing to: each stores what was written since the one before.
//
//   store.protect(0, field.data(), field.size_bytes()).value();
//   for (int step = 0; step < n; ++step) {
//     advance(field);
//     if (step % 10 == 0) store.snapshot(step).value();   // the cut; the program goes on, and so does the copying
//   }
//   store.restore(40, {{0, field.data(), field.size_bytes()}}).value();
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"

namespace ebb {

namespace snapshots {
struct Cut;
}  // namespace snapshots

/// How writes to protected memory are found.
/// faults: the first write to a zone is seen as it happens (userfaultfd, or else mprotect), so a snapshot does not
/// block: a zone that is written before it is copied is copied first (ics19 sec. 4.3.2).
/// scan: the kernel notes written pages, and a snapshot reads its notes (userfaultfd, Linux 6.7).
/// digest: a snapshot reads all of it, and compares XXH3-128 with the last one's.
/// declared: the program says what it wrote: Store::touch.
/// everything: nothing is tracked, and each snapshot stores all of it.
/// automatic: faults while few zones are written between snapshots, and everything where most are.
/// With scan, digest, declared and everything, a snapshot blocks until it is copied, and nothing may be written
/// meanwhile. Page protection does not see writes through pinned pages (memory registered with a GPU, fixed buffers of
/// io_uring, direct reads or RDMA in flight): use digest or declared there.
/// Memory of a GPU has no page protection: there automatic is digest, at the bandwidth of the memory, faults and scan
/// are refused, and a snapshot is of a point of a stream, so nothing waits but later work on that stream.
enum class Track { automatic, faults, scan, digest, declared, everything };

/// "auto", "faults", "scan", "digest", "declared" or "everything". Error: invalid_argument.
Result<Track> parse_track(std::string_view text);

struct ProtectOptions {
  /// Bytes: a power of two, 4 KiB to 16 MiB (of memory of a GPU 1 MiB); the same for all memory of a store.
  std::uint64_t zone = 64 << 10;
  Track track = Track::automatic;
  /// The modes H and D of the paper (ics19 sec. 4.1.5 and 4.3.2), for comparison; the same for all memory of a store.
  /// Without `hints`, a zone may be written when all of its snapshot is copied, not as soon as it is copied itself.
  bool hints = true;
  /// Without, a write to a zone that is not copied yet waits for the zone's turn.
  bool duplicate = true;
};

struct SnapshotOptions {
  std::string metadata = {};  ///< stored with the regions, opaque
  bool full = false;          ///< stores everything, whatever was written
  bool dedup = false;         ///< stores no zone that is stored already, by it or by what it leans on
  /// See Interrupt. Interrupted, there is no such version, and the next snapshot stores everything.
  Interrupt interrupted = {};
  /// Arrays on the GPU are cut at this point of the stream (none: of the legacy default stream); later work on it may
  /// write to them.
  std::optional<StreamHandle> stream = {};
  /// The program calls Snapshot::before_write before it writes to arrays on the GPU: these are copied to the device
  /// cache meanwhile, as it has room, and not on `stream`.
  bool fenced = false;
};

/// What snapshots have cost since the store was opened.
struct SnapshotStats {
  std::uint64_t zones = 0;           ///< protected now
  std::uint64_t dirty = 0;           ///< of them, known to have been written since the last snapshot
  std::uint64_t snapshots = 0;       ///< cuts
  std::uint64_t failures = 0;        ///< snapshots that failed after their cut
  std::uint64_t faults = 0;          ///< first writes that were seen as they happened
  std::uint64_t duplicates = 0;      ///< zones copied because a write came first
  double blocked_s = 0;              ///< that writers waited, added up
  std::uint64_t bytes_gathered = 0;  ///< copied from protected memory
};

/// A snapshot whose cut was taken. Copyable; copies refer to the same snapshot. Thread safety: every method may be
/// called from any thread.
class Snapshot {
 public:
  Snapshot() = default;
  Version version() const;
  /// As Future::done. "copied": it no longer depends on the protected memory. Without a level: the cut was taken, so
  /// always true.
  bool done(std::optional<std::string_view> level = {}) const;
  /// As Future::wait. Errors of the snapshot itself: timed_out (a writer waited too long for the buffer), lost (its
  /// memory was unmapped, or is no longer watched), out_of_memory, those of History::checkpoint.
  Result<void> wait(std::optional<std::string_view> level = {}, std::optional<Seconds> timeout = {}) const;
  /// To be called before work on `stream` (none: the legacy default stream) writes to a protected array on the GPU:
  /// copies the zones that this snapshot has not copied yet, and makes `stream` wait for that. Needed on other streams
  /// than the snapshot's own and with SnapshotOptions::fenced. It waits for room in the device cache, and for nothing
  /// else; of a snapshot that has failed, and of arrays in host memory, it does nothing. Errors: timed_out
  /// (interrupted: the array must not be written to), invalid_argument (a stream of another GPU), unsupported (a stream
  /// that is being captured).
  Result<void> before_write(std::uint32_t region, std::optional<StreamHandle> stream = {},
                            const Interrupt& interrupted = {}) const;
  /// How it failed, if it did.
  std::optional<Error> error() const;

 private:
  friend class Store;
  explicit Snapshot(std::shared_ptr<snapshots::Cut> cut) : cut_(std::move(cut)) {}
  std::shared_ptr<snapshots::Cut> cut_;
};

}  // namespace ebb
