#include "os/fork_mark.hpp"

#include <gtest/gtest.h>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

namespace ebb::os {
namespace {

// What a forked child says.
int in_child(const auto& what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what());
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkMark, is_seen_in_every_child_and_no_parent) {
  const ForkMark mark;
  EXPECT_FALSE(mark.forked());
  EXPECT_EQ(mark.process(), ::getpid());
  EXPECT_EQ(in_child([&] { return mark.forked() ? 1 : 0; }), 1);
  EXPECT_EQ(in_child([&] { return in_child([&] { return mark.forked() ? 2 : 0; }); }), 2) << "a child of a child";
  EXPECT_EQ(in_child([&] {
              const ForkMark own;
              return own.forked() ? 0 : in_child([&] { return own.forked() ? 3 : 0; });
            }),
            3)
      << "a child's own";
  EXPECT_FALSE(mark.forked());
}

TEST(ForkMark, of_a_child_goes_without_the_parents) {
  std::optional<ForkMark> mark(std::in_place);
  EXPECT_EQ(in_child([&] {
              mark.reset();
              return 4;
            }),
            4);
  EXPECT_FALSE(mark->forked());
}

}  // namespace
}  // namespace ebb::os
