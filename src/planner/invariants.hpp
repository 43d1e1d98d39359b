#pragma once
// The invariants, checked as a whole. Tests call it after every step.
#include <array>
#include <vector>

#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

struct Invariants {
  const Context& context;
  const TierSpace& space;
  const CheckpointTable& table;
  const Transfers& transfers;
  const Durability& durability;
  const Calls& calls;

  void check() const;  // throws std::logic_error

 private:
  using Uses = std::vector<std::array<std::uint16_t, kMaxTiers>>;  // moves out of each replica
  Uses check_moves() const;
  void check_commands() const;
  void check_replicas(const Uses& uses) const;
  void check_replica(const Checkpoint& c, TierIndex t) const;
  void check_histories() const;
  void check_durability() const;
};

}  // namespace ebb::policy
