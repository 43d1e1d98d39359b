#pragma once
// Whether bytes are what was given: checksums of what is handed out, digests of memory that was committed.
#include <memory>
#include <optional>
#include <span>

#include "store/parts.hpp"
#include "store/request.hpp"

namespace ebb::store {

/// The regions of a checkpoint in one piece at `data`.
std::vector<PlacedRegion> pieces_in(const CheckpointInfo& info, std::byte* data);

/// With verify="all" a checkpoint's bytes are hashed as they are given, region by region, and again as they are handed
/// out, whatever tier they were on meanwhile. With commit(check) the memory's digest is taken when it is committed, and
/// compared with that of the source of every copy since.
///
/// Thread safety: methods that take a Locked need the mutex; sums_of(), take_digest(), compare(), compare_source() and
/// place() may be called from any thread, without it.
class Verifier {
 public:
  Verifier(const PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Streams& streams, CacheMemory& memory,
           Persistence& files, const options::EngineSetup& setup, std::shared_ptr<device::Device> device)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        streams_(streams),
        memory_(memory),
        files_(files),
        setup_(setup),
        digests_(std::move(device)) {}

  // --- checksums
  using Sums = std::shared_ptr<const Record::Sums>;
  /// The checksums of regions. Empty unless everything is verified. Error invalid_argument: unusable_memory().
  Result<Sums> sums_of(const CheckpointInfo& info, std::span<const PlacedRegion> pieces) const;
  /// The same for a checkpoint whose bytes are all at `data`, one region after the other.
  Sums sums_of(const CheckpointInfo& info, const std::byte* data) const;
  /// Checks the bytes that a call hands out. `mend`: where a cache gave wrong bytes, those in the file are put into
  /// `pieces`. An ephemeral store has discarded the checkpoint: later calls get the error too.
  Result<void> check_handed_out(Locked& locked, CallRow& request, std::span<const PlacedRegion> pieces, bool mend);

  // --- digests
  /// Takes the digest of a hold's memory without waiting: it is there when `stream` (none: at once) has come here.
  Result<std::shared_ptr<Check>> take_digest(const Hold& hold, const std::optional<device::StreamId>& stream);
  /// The check that a command's source must pass; null unless the source is the very memory that was committed to be
  /// checked.
  std::shared_ptr<const Check> check_of(const Locked& locked, const planner::Command& command) const;
  Result<DigestPlace> place() { return digests_.take(); }
  /// Compares a digest of the same memory that was taken later. Error damaged: it differs.
  static Result<void> compared(const Check& check, const DigestPlace& digest);
  /// Takes a digest on `stream`, waits for it and compares it.
  Result<void> compare(const Check& check, device::StreamId stream);
  /// Compares the source of a request before its first copy, on the stream that makes the copy.
  Result<void> compare_source(CallRow& request, const Check& check, bool in_order);
  /// Checks memory that a borrow hands out, which cannot be mended.
  Result<void> check_lent(Locked& locked, CallRow& request);

 private:
  bool take_from_file(Locked& locked, const CallRow& request, std::span<const PlacedRegion> pieces);

  const PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Streams& streams_;
  CacheMemory& memory_;
  Persistence& files_;
  const options::EngineSetup& setup_;
  DigestPlaces digests_;
};

}  // namespace ebb::store
