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
  const bool counts = keeps_in_file() && (several_keep() || retention(first_keeping).keep_last > 0);
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
  // Whether it does so, below another one that does.
  bool lower(TierIndex t) const { return t > first_keeping; }
  bool several_keep() const { return lower(last_tier()); }
  const Retention& retention(TierIndex t) const { return tier(t).retention ? *tier(t).retention : machine.retention; }
  // Whether it is counted what each file has and will have, and what of it is durable.
  bool counts_files() const { return counts; }
  // The tiers that calls write to are those before this one.
  TierIndex write_tiers() const { return std::min<TierIndex>(tier_count, static_cast<TierIndex>(first_keeping + 1)); }

  Time after(Time timeout) const { return timeout >= kNever - now ? kNever : now + timeout; }
  void wake_by(Time at) { wakeup = std::min(wakeup, at); }
  void answer(RequestId id, Reason reason, std::string detail = {}, CheckpointRef checkpoint = {}) {
    out->answers.push_back({.request = id, .reason = reason, .checkpoint = checkpoint, .detail = std::move(detail)});
  }
};

}  // namespace ebb::planner
