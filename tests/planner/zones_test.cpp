#include "planner/zones.hpp"

#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

namespace ebb::planner {
namespace {

constexpr ZoneState kAllZones[] = {ZoneState::gone,    ZoneState::clean, ZoneState::dirty,       ZoneState::owed,
                                   ZoneState::copying, ZoneState::done,  ZoneState::duplicating, ZoneState::duplicated};

TEST(Zones, WhatTheTableHasIsLegalAndAllElseThrows) {
  std::set<std::pair<ZoneState, ZoneState>> legal;
  for (const ZoneTransition& t : zone_transitions()) {
    EXPECT_TRUE(legal.insert({t.from, t.to}).second) << name_of(t.from) << " to " << name_of(t.to) << " is there twice";
    EXPECT_STRNE(t.cause, "");
    EXPECT_STRNE(t.precondition, "");
  }
  for (ZoneState from : kAllZones)
    for (ZoneState to : kAllZones) {
      if (legal.contains({from, to})) {
        EXPECT_EQ(transition(from, to), to);
      } else {
        EXPECT_THROW(transition(from, to), std::logic_error) << name_of(from) << " to " << name_of(to);
      }
    }
}

TEST(Zones, EveryStateIsReachedAndLeft) {
  for (ZoneState state : kAllZones) {
    bool reached = false, left = false;
    for (const ZoneTransition& t : zone_transitions()) reached |= t.to == state, left |= t.from == state;
    EXPECT_TRUE(reached && left) << name_of(state);
  }
}

// What a cut is owed leaves that state by a copy, or by the failure of the cut: no write and no unprotect skips it.
TEST(Zones, WhatIsOwedIsCopiedOrFails) {
  for (const ZoneTransition& t : zone_transitions()) {
    if (!pending(t.from) || pending(t.to)) continue;
    const bool copied = (t.from == ZoneState::copying && t.to == ZoneState::done) ||
                        (t.from == ZoneState::duplicating && t.to == ZoneState::duplicated);
    EXPECT_TRUE(copied || (t.to == ZoneState::dirty && std::string(t.cause) == "failure"))
        << name_of(t.from) << " to " << name_of(t.to);
  }
}

// A zone that no version has is stored by the next cut, unless it is restored or unprotected: only a cut, a restore
// and unprotect lead away from dirty.
TEST(Zones, NothingElseCleansWhatIsDirty) {
  std::set<ZoneState> after;
  for (const ZoneTransition& t : zone_transitions())
    if (t.from == ZoneState::dirty || t.from == ZoneState::duplicated) after.insert(t.to);
  EXPECT_EQ(after, (std::set{ZoneState::clean, ZoneState::owed, ZoneState::gone, ZoneState::dirty}));
}

}  // namespace
}  // namespace ebb::planner
