#pragma once
// What all parts of the planner share: the machine, and the event that is being taken.
#include <algorithm>
#include <string>
#include <utility>

#include "planner/commands.hpp"
#include "planner/topology.hpp"
#include "planner/use.hpp"

namespace ebb::planner {

struct Context {
  explicit Context(Machine m) : machine(std::move(m)) {
    for (TierIndex t = 0; t < tiers(); ++t)
      if (tier(t).medium != Medium::file) memory_tiers |= 1u << t;
  }

  const Machine machine;
  const TierIndex tier_count = static_cast<TierIndex>(machine.tiers.size());
  std::uint32_t memory_tiers = 0;  // bits. As the count of tiers, it is needed too often to look it up each time
  const TierIndex first_keeping = planner::first_keeping(machine);  // tiers(): none
  Time now = 0;
  Output* out = nullptr;
  Time wakeup = kNever;
  bool dirty = false;  // something that a plan depends on has changed
  Counters counters;

  const TierSpec& tier(TierIndex t) const { return machine.tiers[static_cast<std::size_t>(t)]; }
  TierIndex tiers() const { return tier_count; }
  TierIndex last_tier() const { return static_cast<TierIndex>(tier_count - 1); }
  TierIndex below(TierIndex tier) const { return tier + 1 < tiers() ? static_cast<TierIndex>(tier + 1) : kNoTier; }
  bool memory(TierIndex t) const { return memory_tiers >> t & 1; }
  // Whether what is put into the tier's file stays there until it is dropped.
  bool keeps(TierIndex t) const { return t >= first_keeping && t < tiers(); }
  bool keeps_in_file() const { return first_keeping < tiers(); }
  bool retains() const { return machine.retention.keep_last > 0 && keeps_in_file(); }

  Time after(Time timeout) const { return timeout >= kNever - now ? kNever : now + timeout; }
  void wake_by(Time at) { wakeup = std::min(wakeup, at); }
  void answer(RequestId id, Reason reason, std::string detail = {}, CheckpointRef checkpoint = {}) {
    out->answers.push_back({.request = id, .reason = reason, .checkpoint = checkpoint, .detail = std::move(detail)});
  }
};

}  // namespace ebb::planner
