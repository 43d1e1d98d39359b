#pragma once
// What an earlier process left, or another one adds: what is in it, and the newest that is intact.
#include <array>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "options/defaults.hpp"
#include "store/catalog.hpp"
#include "store/parts.hpp"

namespace ebb::store {

/// Registers checkpoints that this process did not write, and follows what becomes of them.
///
/// Thread safety: every method takes the port's Locked, and gives the mutex up while it reads files.
/// 1. What was registered is read, and found to be damaged or gone, only when somebody asks for it.
/// 2. One thread at a time looks at the directory; others wait until what it found is registered. That lock is taken
///    before the port's mutex.
class Recovery {
 public:
  Recovery(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Persistence& files,
           const options::EngineSetup& setup)
      : port_(port), lifetime_(lifetime), catalog_(catalog), files_(files), setup_(setup) {}

  /// Registers the checkpoints that an earlier process left.
  void register_recovered(const Locked& locked);
  /// Registers what a process that writes to the store has added since.
  void refresh(Locked& locked);
  /// Reads the regions of a checkpoint that an earlier process wrote. `to_check`: also the checksums of its regions, if
  /// what is handed out is to be checked.
  Result<void> load_metadata(Locked& locked, planner::HistoryId history, Version version, bool to_check);
  /// The newest version, at most `at_most`, that is intact. Newer ones that are damaged are discarded.
  Result<std::optional<Version>> latest(Locked& locked, planner::HistoryId history, std::optional<Version> at_most,
                                        const Interrupt& interrupted);

  /// Something that a version needs is not there or damaged: it is hidden from every later call, and left on the disk.
  void pass_over(const Locked& locked, planner::HistoryId history, Version version, const Error& why);

  /// The first version that this process writes in a history, or of a file, may be below those of an earlier run, which
  /// retention and latest() then prefer: what to say, once a history.
  std::optional<std::string> beneath(const Locked& locked, planner::HistoryId history, Version version);

  /// The objects of a version in the directories of a store that is read only; 0: there is none.
  using Objects = std::array<storage::ObjectId, kMostFiles>;
  Objects objects_of_version(const Locked& locked, planner::HistoryId history, Version version) const;
  /// The error that a call returns which failed with `error`. None: the process that writes has dropped what the call
  /// read (`before`) and written the version anew, so the call is to be made again.
  std::optional<Error> settle(Locked& locked, planner::HistoryId history, Version version, const Error& error,
                              const Objects& before);

 private:
  void drop_outdated(std::vector<std::vector<storage::Found>>& found);
  // `beside`: another process has added these since.
  void add(const Locked& locked, const FileTier& tier, const std::vector<storage::Found>& found, bool beside);
  std::uint64_t sequence_of(const Record& record) const;
  std::uint64_t changes_seen() const;
  void find_dropped(Locked& locked, planner::HistoryId history, Version version);
  void discard_stale(const Locked& locked, planner::CheckpointRef checkpoint, const Error& why);
  std::optional<Error> load(Locked& locked, planner::CheckpointRef checkpoint, bool sums);
  bool known_intact(const Locked& locked, const Record& record) const;
  Result<std::size_t> verify(Locked& locked, const Record& record, const Interrupt& interrupted, bool& stop);
  Error dropped_error(const Locked& locked, planner::HistoryId history, Version version) const;

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Persistence& files_;
  const options::EngineSetup& setup_;
  std::set<planner::HistoryId> unwritten_;  // those with something of an earlier run, and nothing of this one yet
  std::set<std::string> unwritten_files_;   // the same of files
  std::mutex looking_;                      // one look at the directory at a time
};

}  // namespace ebb::store
