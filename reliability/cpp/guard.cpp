// A trial runs in a process of its own, so that one that crashes or stands still is told of like any other outcome.
#include <csignal>
#include <cstdio>
#include <exception>
#include <poll.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

// The child's whole life.
[[noreturn]] void live(const Trial& trial, const TrialOptions& options, Report& report) {
  try {
    trial.run(options, report);
  } catch (const std::exception& error) {
    report.count(Outcome::crash);
    report.violation(report.current() + ": thrown: " + error.what());
  }
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

bool guarded(const Trial& trial, const TrialOptions& options, Report& report, unsigned hang_seconds) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process can be started");
  if (child == 0) live(trial, options, report);
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  if (handle < 0) throw std::runtime_error("pidfd_open failed");
  bool hangs = false;
  std::uint64_t beat = 0;
  unsigned still = 0;
  for (pollfd waited{handle, POLLIN, 0}; ::poll(&waited, 1, 1000) <= 0;) {
    still = report.beat() == beat ? still + 1 : 0;
    beat = report.beat();
    if (still < hang_seconds) continue;
    hangs = true;
    ::kill(child, SIGKILL);
    break;
  }
  ::close(handle);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (hangs) {
    report.count(Outcome::hang);
    report.violation("it hangs: " + report.current());
  } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    report.count(Outcome::crash);
    report.violation("it crashed (" +
                     std::string(WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                     : "status " + std::to_string(WEXITSTATUS(status))) +
                     "): " + report.current());
  }
  std::uint64_t cases = 0;
  for (std::size_t i = 0; i < kOutcomes; ++i) cases += report.outcomes(static_cast<Outcome>(i));
  if (cases == 0) report.violation("nothing was tried");
  return report.violations() == 0;
}

}  // namespace ebb::trials
