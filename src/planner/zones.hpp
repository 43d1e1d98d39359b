#pragma once
// The life of a zone of protected memory as one table (ics19 sec. 4.1.3 and 4.2.3, and what is ours beyond it).
//
// The paper has two bits a zone: is it still to be transferred, and was it written since. Here a state says both, and
// where the copy of the zone is meanwhile.
#include <cstdint>
#include <span>

#include "planner/state_table.hpp"

namespace ebb::planner {

enum class ZoneState : std::uint8_t {
  gone,         // not protected
  clean,        // a version has its bytes
  dirty,        // no version has its bytes, and no cut is owed them
  owed,         // a cut is owed its bytes; writes to it must wait
  copying,      // owed, and a copy is under way
  done,         // copied for a cut, and not written since
  duplicating,  // a copy is under way, and a write waits for it
  duplicated    // copied because of a write: dirty for the next cut
};

using ZoneTransition = TransitionOf<ZoneState>;

const char* name_of(ZoneState state);
std::span<const ZoneTransition> zone_transitions();

// `to`, if the table has it; throws std::logic_error naming both states otherwise, in every build.
ZoneState transition(ZoneState from, ZoneState to);

// Only a copy ends it, or the failure of the cut.
constexpr bool pending(ZoneState state) {
  return state == ZoneState::owed || state == ZoneState::copying || state == ZoneState::duplicating;
}

}  // namespace ebb::planner
