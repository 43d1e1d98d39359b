#pragma once
// The invariants, checked as a whole. Tests call it after every step.
#include <vector>

#include "planner/state.hpp"

namespace ebb::planner {

class Invariants : Decider {
 public:
  explicit Invariants(State& state) : Decider(state) {}

  void check() const;  // throws std::logic_error

 private:
  using Uses = std::vector<PerTier<std::uint16_t>>;  // moves out of each replica
  Uses check_moves() const;
  void check_commands() const;
  void check_replicas(const Uses& uses) const;
  void check_split(const Checkpoint& c) const;
  void check_replica(const Checkpoint& c, TierIndex t) const;
  void check_histories() const;
  void check_durability() const;
  void check_durability(TierIndex tier) const;
};

}  // namespace ebb::planner
