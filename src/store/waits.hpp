#pragma once
// Calls that only wait.
#include <optional>
#include <string_view>

#include "store/handles.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Waits for what was written, for tiers and for durability, and for Futures.
///
/// Thread safety: every method may be called from any thread; those that take the port's Locked need the mutex.
class Waits {
 public:
  Waits(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, CallStatistics& statistics, Persistence& files,
        CallTable& calls, Callers& callers, Timers& timers, const options::EngineSetup& setup)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        statistics_(statistics),
        files_(files),
        calls_(calls),
        callers_(callers),
        timers_(timers),
        setup_(setup) {}

  Result<void> wait(planner::HistoryId history, std::optional<Version> version, std::string_view level,
                    std::optional<Seconds> timeout, const Interrupt& interrupted);
  bool done(const Waitable& waitable, std::optional<std::string_view> level);
  Result<void> wait(const Waitable& waitable, std::optional<std::string_view> level, std::optional<Seconds> timeout);
  std::optional<Error> error(const Waitable& waitable);
  void keep_until_ended(Waitable& waitable, std::shared_ptr<const void> what);
  /// Waits for all that was written, before a persistent store closes or is suspended. It goes on after a failure.
  /// Error timed_out also if it was interrupted.
  Result<void> drain(Locked& locked, std::string_view level, planner::Time until, const Interrupt& interrupted);
  /// Whether this store knows `level`, and it is one that outlives the process.
  Result<void> check_durability(std::string_view level) const;

 private:
  Result<void> wait(Locked& locked, planner::HistoryId history, std::optional<Version> version, std::string_view level,
                    std::optional<Seconds> timeout, const Interrupt& interrupted);
  Result<void> wait_restored(Locked& locked, const Waitable& waitable, std::optional<Seconds> timeout);
  Result<planner::TierIndex> level_of(std::string_view level) const;
  std::string missing_text(const Locked& locked, planner::HistoryId history, std::optional<Version> version,
                           std::string_view level, planner::TierIndex tier) const;
  bool is_durable(const Waitable& waitable, std::string_view level, planner::TierIndex tier) const;
  Error dropped_error(const Locked& locked, const Waitable& waitable) const;

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  CallStatistics& statistics_;
  Persistence& files_;
  CallTable& calls_;
  Callers& callers_;
  Timers& timers_;
  const options::EngineSetup& setup_;
};

}  // namespace ebb::store
