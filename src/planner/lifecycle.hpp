#pragma once
// The life cycle of a replica (hpdc23 sec. 4.1.3, figure 1, and what is ours beyond it) as one table.
//
// A state summarizes four facts: bytes (none, valid up to a watermark, complete), safe (a lower tier has a complete
// copy, or needs none), uses (copies in flight, reservations, borrows) and demand (none, wanted, consumed). The state
// alone never permits eviction: see the rules in room.cpp.
#include <cstdint>
#include <span>

#include "planner/state_table.hpp"

namespace ebb::planner {

enum class ReplicaState : std::uint8_t {
  gone,
  init,
  reserved,
  writing,
  written,
  flushed,
  reading,
  read_complete,
  consumed
};

using Transition = TransitionOf<ReplicaState>;

const char* name_of(ReplicaState state);
std::span<const Transition> transitions();

// `to`, if the table has it; throws std::logic_error naming both states otherwise, in every build.
ReplicaState transition(ReplicaState from, ReplicaState to);

constexpr bool complete(ReplicaState state) {
  return state == ReplicaState::written || state == ReplicaState::flushed || state == ReplicaState::read_complete ||
         state == ReplicaState::consumed;
}

}  // namespace ebb::planner
