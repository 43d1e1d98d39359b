// ebbtide-agent JOB: the agent of a job's pool on this node. Started by the first process of the job (start_agent.hpp).
#include <chrono>
#include <cstdio>
#include <exception>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "os/files.hpp"
#include "share/agent/agent.hpp"
#include "share/pool/job.hpp"

namespace {

// The program goes first where both want a processor: writing may fall behind by the time that it computes.
constexpr int kNice = 10;
constexpr int kMostTries = 500;

// The agent itself; writes a byte to `listens` when it listens.
int serve(const char* job, int listens) {
  using namespace ebb;
  cpu_set_t every;  // not the processors that the first rank is bound to; the system leaves those that are allowed
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &every);
  ::sched_setaffinity(0, sizeof every, &every);
  static_cast<void>(::nice(kNice));
  try {
    const share::NodeSeams seams = share::NodeSeams::usual();
    os::PosixFiles files;
    os::SteadyClock clock;
    auto opened = seams.memory->open(share::pool_name(job));
    if (!opened || !*opened) return 3;
    auto pool = share::PoolFile::open(std::move(*opened));
    if (!pool) return 4;
    // An agent of a removed pool may still hold the name of the socket.
    auto listener = seams.sockets->listen(share::socket_name(job));
    for (int tries = 0; !listener && listener.error().code == Errc::in_use && tries < kMostTries; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
      if (!(*pool).named()) return 0;
      listener = seams.sockets->listen(share::socket_name(job));
    }
    if (!listener) return 5;
    static_cast<void>(!::write(listens, "l", 1));
    ::close(listens);
    share::Agent agent(seams, files, clock, std::move(*pool), std::move(*listener), true);
    return agent.run() ? 0 : 6;
  } catch (const std::exception&) {
    return 7;
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ebb;
  if (argc != 2 || !share::is_job_identity(argv[1])) {
    std::fprintf(stderr, "ebbtide-agent is started by Ebbtide; expected one argument: a job's name\n");
    return 2;
  }
  // The program that starts it waits for this process, has no other child, and finds an agent that listens.
  int listens[2];
  if (::pipe(listens) != 0) return 1;
  const pid_t child = ::fork();
  if (child < 0) return 1;
  ::close(listens[child == 0 ? 0 : 1]);
  if (child == 0) return serve(argv[1], listens[1]);
  char byte = 0;
  if (::read(listens[0], &byte, 1) == 1) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) ::raise(WTERMSIG(status));
  return WEXITSTATUS(status);
}
