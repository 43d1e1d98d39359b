#include "planner/checkpoint_state.hpp"

#include "tests/planner/state_tables.hpp"

namespace ebb::planner {
namespace {

TEST(CheckpointState, WhatTheTablesHaveIsLegalAndAllElseThrows) {
  expect_is_the_law(write_transitions(), WriteState::stored);
  expect_is_the_law(name_transitions(), NameState::free);
  expect_is_the_law(file_transitions(), FileState::intact);
}

// Nobody's version becomes somebody's again: a slot is freed first.
TEST(CheckpointState, WhatHasLostItsNameNeverHasItAgain) {
  for (const NameTransition& t : name_transitions()) {
    if (nameless(t.from) && t.from != NameState::free) {
      EXPECT_EQ(t.to, NameState::free) << name_of(t.from);
    }
  }
}

// What an earlier process left counts as damaged until it was read, and as an earlier one's until its copy has gone.
TEST(CheckpointState, WhatWasRecoveredIsNeverOneOfOurs) {
  for (const FileTransition& t : file_transitions()) {
    if (of_earlier_process(t.from)) {
      EXPECT_TRUE(t.to == FileState::pending || of_earlier_process(t.to)) << name_of(t.from);
    }
  }
}

}  // namespace
}  // namespace ebb::planner
