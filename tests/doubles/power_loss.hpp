#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/doubles/memory_files.hpp"

namespace ebb::doubles {

/// The states that a machine may have after a power failure in the middle of a journal: everything that the guarantees
/// of a disk and a file system allow, and no more. `n` is the number of journal entries before the failure.
///
/// Synced changes survive: of a file, all changes before a sync of it, except those that an earlier sync failed to
/// write; of a directory, all names created, renamed and removed in it before a sync of it (for a rename between two
/// directories, of both). Of the others, each independently:
/// - a write survives, is lost, or survives in some of its 512-byte sectors; the others have their old contents. Later
///   writes may survive without earlier ones;
/// - the length of a file is one that it had since its last sync; the range of a lost write reads as zeros;
/// - a punch or a preallocation is done or not;
/// - a name that was created, renamed or removed has its old or its new state, a rename the same on both sides. If the
///   change of a name survives, so do the earlier ones of the same file.
///
/// Thread safety: const methods may be called from any thread.
class PowerLoss {
 public:
  using Kind = Change::Kind;
  /// What a torn write leaves: some of its sectors as they were, or, of a disk that stores blocks of 4096 bytes, some
  /// of those as no one wrote them, with all that was in them.
  enum class Torn : std::uint8_t { sectors, blocks };

  explicit PowerLoss(Journal journal) : journal_(std::move(journal)) {}

  std::size_t size() const { return journal_.changes.size(); }
  const Change& change(std::size_t number) const { return journal_.changes.at(number - 1); }

  /// Exactly the first `n` entries: the state that a process killed there leaves on a machine that keeps running.
  std::unique_ptr<MemoryFiles> prefix(std::size_t n) const;
  /// The same, with the journal up to then: a later power failure may take the writes that were not synced.
  std::unique_ptr<MemoryFiles> killed(std::size_t n) const;
  /// One of the possible states after a power failure; the same for the same seed.
  std::unique_ptr<MemoryFiles> crash(std::size_t n, std::uint64_t seed, Torn torn = Torn::sectors) const;
  /// The notes among the first `n`.
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

}  // namespace ebb::doubles
