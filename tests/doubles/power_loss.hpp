#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/doubles/memory_files.hpp"

namespace ebb::platform::testing {

/// What a machine may come back to after it stopped in the middle of a journal: as cruel as what a disk and a file
/// system promise lets it be, and no more. `n` counts the entries that had happened.
///
/// What was synced is there. Of a file, all that was done to it before a sync of it, but for what an earlier one failed
/// to cover; of a directory, all names that
/// were created, renamed and removed in it before a sync of it (of a rename between two: of both).
/// Of the rest, each by itself:
/// - a write is there, lost, or there by some of its 512-byte sectors; elsewhere is what was there before. Later
///   ones may be there without earlier ones;
/// - the length of a file is one that it had since its last sync; what a lost write was to fill reads as zeros;
/// - a punch or a preallocation is done or not;
/// - a name that was created, renamed or removed is as it was or as it became, a rename at once on both sides. A change
///   of a name that is there brings the earlier ones of the same file with it.
///
/// Thread safety: const methods may be called from any thread.
class PowerLoss {
 public:
  using Kind = Change::Kind;

  explicit PowerLoss(Journal journal) : journal_(std::move(journal)) {}

  std::size_t size() const { return journal_.changes.size(); }
  const Change& change(std::size_t number) const { return journal_.changes.at(number - 1); }

  /// Exactly the first `n`: what the process that stopped there leaves behind on a machine that goes on.
  std::unique_ptr<MemoryFiles> prefix(std::size_t n) const;
  /// The same, with all of the journal until then: what that process did not sync, the next one's power may take.
  std::unique_ptr<MemoryFiles> killed(std::size_t n) const;
  /// One of the states that the machine may come back to; the same for the same seed.
  std::unique_ptr<MemoryFiles> crash(std::size_t n, std::uint64_t seed) const;
  /// What had been noted among the first `n`.
  std::vector<std::string> notes(std::size_t n) const;

  /// The numbers of all entries of this kind, in order.
  std::vector<std::size_t> all(Kind kind) const;
  /// Those of all syncs, of files and directories.
  std::vector<std::size_t> syncs() const;
  /// The same journal in which these entries did nothing. The numbers of the others stay.
  PowerLoss without(const std::vector<std::size_t>& numbers) const;
  /// Without the n-th sync, from 1.
  PowerLoss without_sync(std::size_t nth) const { return without({syncs().at(nth - 1)}); }
  /// Without any entry of this kind.
  PowerLoss without_all(Kind kind) const { return without(all(kind)); }

 private:
  Journal journal_;
};

/// For messages: "12 write segment-1.ebb 4096+512".
std::string describe(const Change& change);

}  // namespace ebb::platform::testing
