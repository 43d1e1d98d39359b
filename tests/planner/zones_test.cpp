#include "planner/zones.hpp"

#include <string>

#include "tests/planner/state_tables.hpp"

namespace ebb::planner {
namespace {

TEST(Zones, WhatTheTableHasIsLegalAndAllElseThrows) { expect_is_the_law(zone_transitions(), ZoneState::duplicated); }

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
