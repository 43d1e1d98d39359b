#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ebb::store::testing_support {

inline constexpr unsigned kTooLong = 60;  // seconds, after which a process that hangs is killed

/// What `child` returns in a forked child, or a signal's number and 128.
template <class Child>
int in_a_child(Child child) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(kTooLong);
    ::_exit(child());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ebb::store::testing_support
