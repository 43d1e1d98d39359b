#pragma once
// What a pool holds, from outside of it: nothing is mapped, allocated or changed, so its processes go on meanwhile.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/node.hpp"
#include "share/node_storage.hpp"
#include "share/pool/handover_list.hpp"

namespace ebb::share {

/// A process of a pool, and what it has listed whole that is not finished, at one moment.
struct SurveyedProcess {
  PoolProcess process;
  bool alive = false;
  bool elsewhere = false;  // alive in another PID namespace
  std::uint64_t slabs = 0;
  std::vector<WholeObject> waiting;
};

struct Survey {
  PoolHeader header;
  admin::Pool::Agent agent = admin::Pool::Agent::none;
  pid_t agent_pid = 0;
  std::vector<SurveyedProcess> processes;
  PoolProgress progress;                 // of a moment before the processes
  std::shared_ptr<os::SharedFile> file;  // can be read after its removal
  bool any_alive() const;
  /// At this moment. Errors: those of SharedFile.
  Result<PoolProgress> progress_now() const;
};

std::uint64_t bytes_of(const WholeObject& object);

/// Null: there is no such pool. Errors: damaged, unsupported (another version), those of SharedFile and of the socket.
Result<std::optional<Survey>> survey_pool(const NodeSeams& seams, os::Files& files, const std::string& name);

}  // namespace ebb::share
