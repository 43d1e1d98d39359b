#pragma once
// What a store counts of calls; the planner counts the rest.
#include <array>

#include "ebbtide/stats.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Thread safety: every method takes the port's Locked.
class CallStatistics {
 public:
  enum class Blocked : std::uint8_t { copy, room, transfer, wait };
  explicit CallStatistics(const PlannerPort& port) : port_(port), hits_(port.machine().tiers.size()) {}

  void count_checkpoint(const Locked& locked, std::uint64_t bytes);
  void count_restore(const Locked& locked, const planner::Answer& answer, std::uint64_t bytes);
  /// A call that began at `started` and copied for `copying` was held up by `rest` otherwise.
  void count_blocked(const Locked& locked, Blocked rest, planner::Time started, planner::Time copying,
                     planner::Time until);
  /// Everything but arenas and settings.
  Stats stats(const Locked& locked) const;

 private:
  const PlannerPort& port_;
  // All below by the port's mutex.
  Stats counters_;                          // what the planner does not count
  std::vector<std::uint64_t> hits_;         // by tier
  std::array<planner::Time, 4> blocked_{};  // by Blocked
};

}  // namespace ebb::store
