#pragma once
// When checkpoints become durable, and when the disk has their room back, as the storage of a store would report it.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/planner.hpp"
#include "sim/simulation.hpp"

namespace ebb::sim {

namespace event = planner::event;

// The checkpoints of every rank that are complete in a file and not durable there yet. With one file and no retention
// there are none.
//
// Thread safety: none.
class Syncing {
 public:
  struct Synced {
    int rank = 0;
    std::uint64_t checkpoint = 0;
    HistoryId history = 0;
    Version version = 0;
    TierIndex tier = planner::kNoTier;
    std::uint64_t attempt = 0;  // of writing it to a file below another
  };

  // The machine and the options must outlive it.
  Syncing(const MachineModel& machine, const Options& options, std::size_t ranks);

  // The planner has taken an event about a version; `recovered`: an earlier process wrote it.
  void named(int rank, const planner::Planner& planner, HistoryId history, Version version, bool recovered, Time now);
  // A command for a checkpoint has ended: it may be complete in the file.
  void moved(int rank, const planner::Planner& planner, planner::CheckpointRef checkpoint, Time now);
  void freed(int rank, const planner::Freed& what, Time now);
  void commit_requested(int rank, std::uint32_t tiers, Time now);

  bool idle() const;
  // The time at which something is next due.
  Time next(Time now) const;
  // One that is due.
  std::optional<Synced> take_due(Time now);
  // A rank of which something is released now.
  std::optional<std::pair<int, event::Unreleased>> take_released(Time now);
  // Checkpoints dropped meanwhile are not reported.
  std::optional<planner::event::Any> outcome(const Synced& synced, Time now, const planner::Planner& planner) const;

 private:
  struct Rank {
    std::map<std::uint64_t, std::pair<HistoryId, Version>> names;  // of checkpoints
    std::map<std::uint64_t, std::uint64_t> attempts;               // of writing one to a file below another
  };
  // Of one file: what is complete there, and when each becomes durable; what was freed, and when the disk has it back.
  struct File {
    int rank = 0;
    TierIndex tier = planner::kNoTier;
    std::map<std::uint64_t, Time> undurable;
    std::vector<std::pair<Time, planner::Bytes>> unreleased;
  };
  bool syncs() const;
  bool lower(TierIndex tier) const { return tier > planner::first_keeping(machine_.planner); }
  void complete(File& file, std::uint64_t checkpoint, Time now);
  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const MachineModel& machine_;
  const Options& options_;
  std::vector<Rank> ranks_;
  std::vector<File> files_;  // of each rank and tier
};

}  // namespace ebb::sim
