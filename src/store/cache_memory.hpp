#pragma once
// The memory of the caches, which comes, or fails to come, while the store is in use.
#include <memory>

#include "ebbtide/store.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"
#include "store/tiers.hpp"

namespace ebb::runtime {

/// Owns the tiers' memory, and tells the planner where a tier ends.
///
/// Thread safety: usable(), never(), no_memory_error(), tiers() and share() may be called from any thread, until
/// free(); everything else takes the port's Locked, or is called by one thread.
/// 1. The planner learns where a tier ends before it learns that a command failed for lack of memory there.
/// 2. Memory is freed when nothing moves any more; what is lent stays mapped (Tiers).
class CacheMemory {
 public:
  CacheMemory(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, LinkQueues& queues, CallTable& calls)
      : port_(port), lifetime_(lifetime), catalog_(catalog), queues_(queues), calls_(calls) {}
  /// Before any thread is there. Error out_of_memory naming the tier.
  Result<void> create(const Seams& seams, const EngineSetup& setup);
  /// No memory comes any more.
  void stop();
  void free(const Locked& locked);

  const Tiers& tiers() const { return *tiers_; }
  Tiers& tiers() { return *tiers_; }
  /// For what is lent. Empty: it was freed, or never there.
  const std::shared_ptr<Tiers>& share() const { return tiers_; }

  /// Submits where tiers end that have less memory than the planner counts on.
  void submit_limits(const Locked& locked);
  /// Whether it can be carried out now, if only to fail.
  bool usable(const policy::Command& command) const;
  /// Its memory never comes, or it would read what never came.
  bool never(const policy::Command& command) const;
  Error no_memory_error(const policy::Command& command) const;
  /// What a reservation was granted, before it is handed out.
  Result<void> await(Locked& locked, Request& request, const Interrupt& interrupted);
  /// The planner has given a command: its target's memory will be used.
  void want(const policy::Command& command);
  /// A replica is gone.
  void discard(const Locked& locked, const policy::Freed& freed);

 private:
  void changed();

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  LinkQueues& queues_;
  CallTable& calls_;
  std::shared_ptr<Tiers> tiers_;  // constant between create() and free()
};

}  // namespace ebb::runtime
