#include "planner/lifecycle.hpp"

#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

namespace ebb::planner {
namespace {

constexpr ReplicaState kAll[] = {ReplicaState::gone,    ReplicaState::init,          ReplicaState::reserved,
                                 ReplicaState::writing, ReplicaState::written,       ReplicaState::flushed,
                                 ReplicaState::reading, ReplicaState::read_complete, ReplicaState::consumed};

TEST(Lifecycle, WhatTheTableHasIsLegalAndAllElseThrows) {
  std::set<std::pair<ReplicaState, ReplicaState>> legal;
  for (const Transition& t : transitions()) {
    EXPECT_TRUE(legal.insert({t.from, t.to}).second) << name_of(t.from) << " to " << name_of(t.to) << " is there twice";
    EXPECT_STRNE(t.cause, "");
    EXPECT_STRNE(t.precondition, "");
  }
  for (ReplicaState from : kAll)
    for (ReplicaState to : kAll) {
      if (legal.contains({from, to})) {
        EXPECT_EQ(transition(from, to), to);
      } else {
        EXPECT_THROW(transition(from, to), std::logic_error) << name_of(from) << " to " << name_of(to);
      }
    }
}

TEST(Lifecycle, EveryStateIsReachedAndLeft) {
  for (ReplicaState state : kAll) {
    bool reached = false, left = false;
    for (const Transition& t : transitions()) reached |= t.to == state, left |= t.from == state;
    EXPECT_TRUE(reached && left) << name_of(state);
  }
}

TEST(Lifecycle, OnlyReservedWritingAndReadingBecomeComplete) {
  for (const Transition& t : transitions()) {
    if (complete(t.from) || !complete(t.to)) continue;
    EXPECT_TRUE(t.from == ReplicaState::reserved || t.from == ReplicaState::writing || t.from == ReplicaState::reading);
  }
}

}  // namespace
}  // namespace ebb::planner
