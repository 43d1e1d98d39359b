#pragma once
// What every table of states promises.
#include <gtest/gtest.h>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "planner/state_table.hpp"

namespace ebb::planner {

/// Each transition of the table is there once, is legal and says why; each other one throws. Each state is reached, and
/// is left. `last`: the highest state.
template <class State>
void expect_is_the_law(std::span<const TransitionOf<State>> table, State last) {
  std::set<std::pair<State, State>> legal;
  std::set<State> reached, left;
  for (const auto& t : table) {
    EXPECT_TRUE(legal.insert({t.from, t.to}).second) << name_of(t.from) << " to " << name_of(t.to) << " is there twice";
    EXPECT_STRNE(t.cause, "");
    EXPECT_STRNE(t.precondition, "");
    left.insert(t.from);
    reached.insert(t.to);
  }
  for (int f = 0; f <= static_cast<int>(last); ++f) {
    const auto from = static_cast<State>(f);
    EXPECT_TRUE(reached.contains(from) && left.contains(from)) << name_of(from);
    for (int t = 0; t <= static_cast<int>(last); ++t) {
      const auto to = static_cast<State>(t);
      if (legal.contains({from, to})) {
        EXPECT_EQ(transition(from, to), to);
      } else {
        EXPECT_THROW(transition(from, to), std::logic_error) << name_of(from) << " to " << name_of(to);
      }
    }
  }
}

}  // namespace ebb::planner
