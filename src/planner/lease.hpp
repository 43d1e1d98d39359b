#pragma once
// The life of a lease, memory of one process that another one uses, as one table.
#include <cstdint>
#include <span>

#include "planner/state_table.hpp"

namespace ebb::planner {

enum class LeaseState : std::uint8_t {
  gone,      // nobody has it: the lender can allocate these bytes
  lent,      // its borrower may use it
  recalled,  // its borrower is to return it
  overdue,   // its borrower has not, and the deadline has passed
  orphaned   // its borrower is dead, but something may still use the memory
};

using LeaseTransition = TransitionOf<LeaseState>;

const char* name_of(LeaseState state);
std::span<const LeaseTransition> lease_transitions();

// `to`, if the table has it; throws std::logic_error naming both states otherwise, in every build.
LeaseState transition(LeaseState from, LeaseState to);

}  // namespace ebb::planner
