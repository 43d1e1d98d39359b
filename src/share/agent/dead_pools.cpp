#include "share/agent/dead_pools.hpp"

#include "share/agent/agent.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share {

Result<bool> finish_if_dead(const NodeSeams& seams, os::Files& files, os::Clock& clock, const std::string& name) {
  auto file = seams.memory->open(name);
  if (!file) return file.error();
  if (!*file) return false;
  auto pool = PoolFile::open(std::move(*file));
  if (!pool && pool.error().code == Errc::lost) {
    if (auto removed = seams.memory->remove(name); !removed) return removed.error();
    return true;
  }
  if (!pool) return pool.error();
  if (pool_name(pool->header().job) != name) return Error{Errc::damaged, name + " is another job's pool"};
  const std::string socket = socket_name(pool->header().job);
  const auto agent = seams.sockets->connect(socket);
  if (!agent) return agent.error();
  if (*agent) return false;
  // An agent that this process cannot reach, or another that finishes the pool: held first, so that one of two goes on.
  if (auto held = pool->hold(kAgentProcess); !held) return held.error();
  if (pool->may_use(kAgentProcess, files)) return false;
  for (std::uint32_t slot = 0; slot < pool->shape().processes; ++slot) {
    const auto process = pool->tables().process(slot);
    if (process && pool->may_use(process->process, files)) return false;
  }
  Agent last(seams, files, clock, std::move(*pool), nullptr, false);
  if (auto done = last.run(); !done) return done.error();
  static_cast<void>(seams.sockets->listen(socket));  // what a killed agent left of its name goes with this
  return true;
}

}  // namespace ebb::share
