#pragma once
// The memory of the caches, which comes, or fails to come, while the store is in use.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ebbtide/store.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"
#include "store/tiers.hpp"

namespace ebb::store {

/// Who lends a segment of memory.
struct LentBy {
  planner::PartyId party = 0;
  device::Device* owner = nullptr;  // LeaseSource::Terms::owner
};

/// Owns the tiers' memory, and submits where its segments end.
///
/// Thread safety: usable(), never(), no_memory_error(), tiers() and share() may be called from any thread, until
/// free(); everything else takes the port's Locked, or is called by one thread.
/// 1. The planner learns where a segment ends before it learns that a command failed for lack of memory there.
/// 2. Memory is freed when nothing moves any more, also that of a segment that was returned or lost; what is lent out
///    stays mapped (Tiers).
/// 3. Adopted memory is let go of without the mutex (PlannerPort::let_go()), and only after the last command that reads
///    it.
class CacheMemory {
 public:
  CacheMemory(PlannerPort& port, Lifetime& lifetime, Catalog& catalog)
      : port_(port), lifetime_(lifetime), catalog_(catalog) {}
  /// Called before any thread is there. `changed` is called on a thread of the tiers once more memory can be used, or
  /// less will ever be. What is provisioned is recorded in `log`, if there is one. Error out_of_memory naming the tier.
  Result<void> create(const options::Seams& seams, const options::EngineSetup& setup, Tiers::Changed changed,
                      const std::shared_ptr<trace::ProvisionLog>& log);
  /// No memory comes any more.
  void stop();
  void free(const Locked& locked);

  const Tiers& tiers() const { return *tiers_; }
  Tiers& tiers() { return *tiers_; }
  /// Keeps the tiers' memory mapped for whoever reads lent memory. Empty: it was freed, or never there.
  const std::shared_ptr<Tiers>& share() const { return tiers_; }

  // For lenders of memory. A segment's memory is valid until the store has closed, whatever becomes of the segment.
  /// A new segment: memory that is all ready, of `lender` (event::Lend). Errors: invalid_argument (not a memory tier,
  /// or it has as many segments as it may have), closed.
  Result<planner::SegmentId> lend(const Locked& locked, planner::TierIndex tier,
                                  std::unique_ptr<cache::TierMemory> memory, const LentBy& lender);
  /// More of a segment that was recalled may be used again. False: it was lost, or has no more.
  bool extend(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
              const LentBy& lender);
  /// The device over whose link copies between the place and the host go; null: the application's.
  device::Device* owner(const Locked& locked, const planner::Place& place) const;
  /// All but the first `bytes` will be taken back, at `deadline` if there is one. What is there leaves, and is moved if
  /// it is the only copy. False: no more than that is lent.
  bool recall(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
              planner::Time deadline);
  /// Waits until nothing is left of what was recalled; false after `timeout`, or when the store stops or the segment is
  /// lost.
  bool await_returned(Locked& locked, planner::TierIndex tier, planner::SegmentId segment,
                      std::chrono::nanoseconds timeout);
  /// The segment's bytes are gone; versions of which it had the only copy are lost.
  void lose(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment);
  /// The planner has nothing left beyond the end of a segment.
  void take_returned(const Locked& locked, const planner::Returned& returned);
  void wake_lenders(const Locked& /*locked*/) { returned_.notify_all(); }

  /// Submits where segments end that have less memory than the planner counts on.
  void submit_limits(const Locked& locked);
  /// Whether the command can be carried out now, if only to fail.
  bool usable(const planner::Command& command) const;
  /// Whether memory that the command reads or writes will never be there.
  bool never(const planner::Command& command) const;
  Error no_memory_error(const planner::Command& command) const;
  /// Waits until the memory that a reservation was granted can be used.
  Result<void> await(Locked& locked, CallRow& request, const Interrupt& interrupted);
  /// The planner has given a command: its target's memory will be used.
  void want(const planner::Command& command);
  /// `owner` keeps the memory alive in which the checkpoint is adopted. Until that replica is gone.
  void adopt(const Locked& /*locked*/, planner::CheckpointRef checkpoint, std::shared_ptr<const void> owner) {
    if (tiers_) adopted_.emplace(key_of(checkpoint), std::move(owner));  // else the store has closed meanwhile
  }
  /// Empty: its replica in the first tier is in memory of the store.
  std::shared_ptr<const void> owner_of_adopted(const Locked& locked, planner::CheckpointRef checkpoint) const;
  /// A replica is gone.
  void discard(const Locked& locked, const planner::Freed& freed);

 private:
  struct SegmentUse {
    std::uint64_t usable = 0;  // as the planner has been told
    bool returned = true;
    bool lost = false;
    device::Device* owner = nullptr;
  };
  static std::uint64_t key_of(planner::CheckpointRef ref) { return std::uint64_t{ref.slot} << 32 | ref.generation; }
  void expect_recalls(const Locked& locked, planner::TierIndex tier);
  SegmentUse* segment_of(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  std::shared_ptr<Tiers> tiers_;                                            // constant between create() and free()
  std::vector<std::vector<SegmentUse>> segments_;                           // by tier; by the port's mutex
  std::unordered_map<std::uint64_t, std::shared_ptr<const void>> adopted_;  // by the port's mutex
  std::condition_variable returned_;                                        // with the port's mutex
};

}  // namespace ebb::store
