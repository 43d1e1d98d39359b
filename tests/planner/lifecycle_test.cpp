#include "planner/lifecycle.hpp"

#include "tests/planner/state_tables.hpp"

namespace ebb::planner {
namespace {

TEST(Lifecycle, WhatTheTableHasIsLegalAndAllElseThrows) { expect_is_the_law(transitions(), ReplicaState::consumed); }

TEST(Lifecycle, OnlyReservedWritingAndReadingBecomeComplete) {
  for (const Transition& t : transitions()) {
    if (complete(t.from) || !complete(t.to)) continue;
    EXPECT_TRUE(t.from == ReplicaState::reserved || t.from == ReplicaState::writing || t.from == ReplicaState::reading);
  }
}

}  // namespace
}  // namespace ebb::planner
