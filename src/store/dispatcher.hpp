#pragma once
// Where the planner's output goes.
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Delivers each event's output: every part hears from here alone what the planner decided, and none of them knows the
/// others that do.
///
/// Thread safety: wake_pump() may be called from any thread; everything else takes the port's Locked.
class Dispatcher final : public Receiver {
 public:
  Dispatcher(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, CacheMemory& memory, Persistence& files,
             LinkQueues& queues, CallTable& calls, PumpThread& pump)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        memory_(memory),
        files_(files),
        queues_(queues),
        calls_(calls),
        pump_(pump) {}

  void take(const Locked& locked, planner::Output& output) override;
  bool pump_wanted(const Locked& locked) override;
  void wake_pump() override;
  void wake_everyone(const Locked& locked) override;

 private:
  void take_command(const Locked& locked, const planner::Command& command);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  CacheMemory& memory_;
  Persistence& files_;
  LinkQueues& queues_;
  CallTable& calls_;
  PumpThread& pump_;
};

}  // namespace ebb::store
