#pragma once
// The memory of tiers, as its lenders see it.
#include <algorithm>
#include <optional>
#include <vector>

#include "planner/commands.hpp"
#include "planner/events.hpp"
#include "sim/content.hpp"
#include "sim/program.hpp"

namespace ebb::sim {

// The lenders of every rank's memory: they lend, recall, take and lose it. What changes a segment returns the planner's
// event, if there is one; a rank's `content` follows.
//
// Thread safety: none.
class Lenders {
 public:
  struct LentSegment {
    Bytes first = 0, extent = 0, usable = 0;
    planner::PartyId copied_by = 0;  // the lender whose device copies to the host; 0: the rank's own does
    bool lost = false;
    bool returned = true;        // nothing is beyond the usable bytes
    Time due = planner::kNever;  // when its lender takes recalled memory
  };
  struct Due {
    int rank = 0;
    TierIndex tier = 0;
    planner::SegmentId segment = 0;
  };

  // The machine must outlive it.
  Lenders(const planner::Machine& machine, std::size_t ranks);

  // The segment that has a place; null: none.
  const LentSegment* find(int rank, const planner::Place& place) const;
  planner::PartyId copied_by(int rank, const planner::Command& command) const;
  bool beyond(int rank, const planner::Place& place, Bytes bytes) const;
  bool lost(int rank, const planner::Command& command) const;
  std::optional<planner::event::Any> lend(int rank, const Op& op, std::optional<Content>& content);
  std::optional<planner::event::Any> recall(int rank, const Op& op, Time now);
  std::optional<planner::event::Any> lose(const Due& what, std::optional<Content>& content);
  // The planner has returned recalled memory.
  void returned(int rank, const planner::Returned& what, std::optional<Content>& content);

  // The time at which a recall is next due.
  Time next(Time now) const;
  // A recall that is due: its lender takes the memory with all remaining replicas.
  std::optional<Due> due(Time now) const;

 private:
  std::vector<LentSegment>& of(int rank, TierIndex tier) {
    return segments_[static_cast<std::size_t>(rank)].at(static_cast<std::size_t>(tier));
  }

  const planner::Machine& machine_;
  std::vector<std::vector<std::vector<LentSegment>>> segments_;  // of each rank's tiers
};

}  // namespace ebb::sim
