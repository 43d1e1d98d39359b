// ebbtide/node.hpp over the pools of this machine.
#include <algorithm>

#include "ebbtide/node.hpp"
#include "share/agent/drain.hpp"
#include "share/agent/pool_survey.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::admin {
namespace {

Pool pool_of(const share::Survey& survey) {
  const share::PoolShape& shape = survey.header.shape;
  Pool pool;
  pool.directory = survey.header.store.directory;
  pool.budget = shape.budget;
  pool.chunk = shape.chunk_bytes;
  pool.slab = shape.slab_bytes();
  pool.agent = survey.agent;
  pool.agent_pid = survey.agent_pid;
  for (const share::SurveyedProcess& one : survey.processes) {
    PoolProcess process{one.process.rank, one.process.process.pid, one.alive, one.elsewhere, one.process.share,
                        one.slabs,        one.waiting.size(),      0};
    for (const share::WholeObject& object : one.waiting) process.bytes += share::bytes_of(object);
    pool.checkpoints += process.checkpoints;
    pool.bytes += process.bytes;
    pool.processes.push_back(process);
  }
  std::ranges::sort(pool.processes, {}, [](const PoolProcess& one) { return std::pair(one.rank, one.pid); });
  return pool;
}

}  // namespace

Result<std::vector<Pool>> pools() {
  const share::NodeSeams seams = share::NodeSeams::usual();
  os::PosixFiles files;
  auto names = seams.memory->list();
  if (!names) return names.error();
  std::vector<Pool> all;
  std::ranges::sort(*names);
  for (const std::string& name : *names) {
    if (!share::is_pool_name(name)) continue;
    const auto survey = share::survey_pool(seams, files, name);
    if (survey && !*survey) continue;  // it is gone since
    Pool pool = survey ? pool_of(**survey) : Pool{};
    if (!survey) pool.error = survey.error();
    pool.job = share::job_of_pool(name);
    pool.file = os::TmpfsSharedMemory::usual_directory() / name;
    all.push_back(std::move(pool));
  }
  return all;
}

Result<Drained> drain(const std::string& job, std::chrono::milliseconds timeout, const std::function<bool()>& go_on) {
  if (!share::is_pool_name(share::pool_name(job))) {
    return Error{Errc::invalid_argument, "\"" + job + "\" is no job's name: expected letters, digits and \"._-%\""};
  }
  os::PosixFiles files;
  os::SteadyClock clock;
  return share::drain_pool(share::NodeSeams::usual(), files, clock, job, timeout, go_on);
}

}  // namespace ebb::admin
