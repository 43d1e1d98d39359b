#pragma once
// All checkpoints, by slot and by name, and the restore order of each history.
#include <deque>
#include <vector>

#include "planner/checkpoint.hpp"
#include "planner/context.hpp"
#include "planner/tier_space.hpp"

namespace ebb::planner {

class CheckpointTable {
 public:
  CheckpointTable(Context& context, const TierSpace& space);

  Checkpoint& operator[](Slot s) { return checkpoints_[s]; }
  const Checkpoint& operator[](Slot s) const { return checkpoints_[s]; }
  const Checkpoint& at(Slot s) const { return checkpoints_.at(s); }
  std::size_t size() const { return checkpoints_.size(); }
  CheckpointRef ref(Slot s) const { return {s, checkpoints_[s].generation}; }

  void admit(HistoryId client);  // it may be new
  void forget(HistoryId client);
  bool idle(HistoryId client) const;
  std::vector<History>& histories() { return histories_; }
  const std::vector<History>& histories() const { return histories_; }
  History& history(HistoryId client) { return histories_[client]; }
  const History& history(HistoryId client) const { return histories_[client]; }
  History& history_of(const Checkpoint& c) { return histories_[c.history]; }
  const History& history_of(const Checkpoint& c) const { return histories_[c.history]; }

  // Names.
  Slot lookup(HistoryId history, Version version) const;  // kNoSlot: none
  // Whether the version is written, or being written by a checkpoint call.
  bool readable(Slot slot) const {
    return slot != kNoSlot && checkpoints_[slot].exists() && checkpoints_[slot].write != WriteState::reserved;
  }
  Slot obtain(HistoryId history, Version version);
  void unname(Slot slot);
  void detach(Slot slot);
  void release(Slot slot);

  // Complete copies.
  TierIndex fastest(const Checkpoint& c) const;
  TierIndex lowest(const Checkpoint& c) const;
  bool safe_below(const Checkpoint& c, TierIndex t) const;

  // File tiers that keep. Whether the version is one that a tier gets, whether it is there or has yet to come, and
  // whether a tier below `t` has it or gets it.
  bool sent_to(const Checkpoint& c, TierIndex t) const;
  bool belongs(const Checkpoint& c, TierIndex t) const;
  bool goes_below(const Checkpoint& c, TierIndex t) const;
  // Where it goes from `t`, its lowest copy; kNoTier: nowhere, or it is on its way.
  TierIndex next_below(const Checkpoint& c, TierIndex t) const;
  // Whether a tier below `t` gets it, and it is not durable there yet.
  bool awaited_below(const Checkpoint& c, TierIndex t) const;
  // Whether another file tier has a copy that can be read.
  bool kept_beside(const Checkpoint& c, TierIndex t) const;
  void set_state(Slot slot, TierIndex tier, ReplicaState to);
  void set_stored(Checkpoint& c);  // the application's bytes are all here
  std::uint64_t next_sequence() { return ++sequence_; }

  // Restore order.
  std::int64_t distance(const Checkpoint& c) const;
  bool remove_first_hint(Slot slot);
  void recount(Slot slot);  // its place in the restore order is to be served again
  std::uint32_t ready_successors(History& history) const;

 private:
  Context& context_;
  const TierSpace& space_;
  std::deque<Checkpoint> checkpoints_;  // obtain() adds one while references to others are held
  std::vector<Slot> free_slots_;
  std::vector<History> histories_;
  std::uint64_t sequence_ = 0;
};

}  // namespace ebb::planner
