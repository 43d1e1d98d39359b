// ebbtide-agent JOB: the agent of a job's pool on this node. Started by the first process of the job (start_agent.hpp).
#include <cstdio>
#include <exception>
#include <sched.h>
#include <unistd.h>

#include "node/agent.hpp"
#include "node/job.hpp"
#include "os/files.hpp"

namespace {

// The program goes first where both want a processor: writing may fall behind by the time that it computes.
constexpr int kNice = 10;

}  // namespace

int main(int argc, char** argv) {
  using namespace ebb;
  if (argc != 2 || !node::is_job_identity(argv[1])) {
    std::fprintf(stderr, "ebbtide-agent is started by Ebbtide; expected one argument: a job's name\n");
    return 2;
  }
  // The program that starts it waits for this process, and has no other child.
  if (const pid_t child = ::fork(); child != 0) return child < 0 ? 1 : 0;
  cpu_set_t every;  // not the processors that the first rank is bound to; the system leaves those that are allowed
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &every);
  ::sched_setaffinity(0, sizeof every, &every);
  static_cast<void>(::nice(kNice));
  try {
    const node::NodeSeams seams = node::NodeSeams::usual();
    platform::PosixFiles files;
    platform::SteadyClock clock;
    auto opened = seams.memory->open(node::pool_name(argv[1]));
    if (!opened || !*opened) return 3;
    auto pool = node::PoolFile::open(std::move(*opened));
    if (!pool) return 4;
    auto listener = seams.sockets->listen(node::socket_name(argv[1]));
    if (!listener) return 5;
    node::Agent agent(seams, files, clock, std::move(*pool), std::move(*listener), true);
    return agent.run() ? 0 : 6;
  } catch (const std::exception&) {
    return 7;
  }
}
