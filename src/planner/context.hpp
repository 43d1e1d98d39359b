#pragma once
// What all parts of the planner share: the machine, and the event that is being taken.
#include <algorithm>
#include <string>
#include <utility>

#include "planner/planner.hpp"

namespace ebb::policy {

struct Context {
  explicit Context(Machine m) : machine(std::move(m)) {}

  Machine machine;
  Time now = 0;
  Output* out = nullptr;
  Time wakeup = kNever;
  bool dirty = false;  // something that a plan depends on has changed
  Counters counters;

  const TierSpec& tier(TierIndex t) const { return machine.tiers[static_cast<std::size_t>(t)]; }
  TierIndex tiers() const { return static_cast<TierIndex>(machine.tiers.size()); }
  TierIndex last_tier() const { return static_cast<TierIndex>(machine.tiers.size() - 1); }
  TierIndex below(TierIndex tier) const { return tier + 1 < tiers() ? static_cast<TierIndex>(tier + 1) : kNoTier; }
  bool memory(TierIndex t) const { return tier(t).medium != Medium::file; }
  bool keeps_in_file() const { return !machine.ephemeral && !memory(last_tier()); }
  bool retains() const { return machine.retention.keep_last > 0 && keeps_in_file(); }

  Time after(Time timeout) const { return timeout >= kNever - now ? kNever : now + timeout; }
  void wake_by(Time at) { wakeup = std::min(wakeup, at); }
  void answer(RequestId id, Reason reason, std::string detail = {}, CheckpointRef checkpoint = {}) {
    out->answers.push_back({.request = id, .reason = reason, .checkpoint = checkpoint, .detail = std::move(detail)});
  }
};

}  // namespace ebb::policy
