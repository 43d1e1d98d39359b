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

// The checkpoints of every rank that are complete in the file and not durable yet. Without retention there are none.
//
// Thread safety: none.
class Syncing {
 public:
  struct Synced {
    int rank = 0;
    std::uint64_t checkpoint = 0;
    HistoryId history = 0;
    Version version = 0;
  };

  // Both must outlive it.
  Syncing(const MachineModel& machine, const Options& options, std::size_t ranks)
      : machine_(machine), options_(options), ranks_(ranks) {}

  // The planner has taken an event about a version; `recovered`: an earlier process wrote it.
  void named(int rank, const planner::Planner& planner, HistoryId history, Version version, bool recovered, Time now);
  // A command for a checkpoint has ended: it may be complete in the file.
  void moved(int rank, const planner::Planner& planner, planner::CheckpointRef checkpoint, Time now);
  void freed(int rank, const planner::Freed& what, Time now);
  void commit_requested(int rank, Time now);

  bool idle() const;
  // The time at which something is next due.
  Time next(Time now) const;
  // One that is due.
  std::optional<Synced> take_due(Time now);
  // A rank of which something is released now.
  std::optional<std::pair<int, event::Unreleased>> take_released(Time now);
  // Checkpoints dropped meanwhile are not reported.
  std::optional<planner::event::Any> outcome(const Synced& synced, const planner::Planner& planner) const;

 private:
  struct Rank {
    std::map<std::uint64_t, std::pair<HistoryId, Version>> names;  // of checkpoints
    std::map<std::uint64_t, Time> undurable;                       // complete in the file: when each becomes durable
    std::vector<std::pair<Time, planner::Bytes>> unreleased;       // freed there: when the disk has so much back
  };
  bool syncs() const;
  TierIndex file_tier() const { return planner::first_keeping(machine_.planner); }
  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const MachineModel& machine_;
  const Options& options_;
  std::vector<Rank> ranks_;
};

}  // namespace ebb::sim
