// Errors of starting an agent.
#include "node/start_agent.hpp"

#include <fstream>
#include <gtest/gtest.h>

#include "tests/node/rank.hpp"

namespace ebb::node {
namespace {

Result<void> start(const test::Place& place, const std::string& script) {
  const std::filesystem::path program = place.shared() / "agent";
  std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return start_agent(program, "job-test");
}

TEST(StartAgent, one_that_was_killed_may_be_started_again_and_one_that_cannot_start_may_not) {
  const test::Place place;
  EXPECT_TRUE(start(place, "exit 0"));
  const auto killed = start(place, "kill -9 $$");
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Errc::closed);
  const auto ended = start(place, "exit 5");
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::io_error);
  EXPECT_NE(ended.error().message.find("status 5"), std::string::npos) << ended.error().message;
}

}  // namespace
}  // namespace ebb::node
