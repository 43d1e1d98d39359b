#pragma once
// The memory that this user's processes share on this node: pools, what they hold, and how they are drained; and what
// they lend to one another. The command `ebbtide node`; docs/node.md says what a pool is, docs/peers.md what is lent.
//
//   for (const auto& pool : ebb::admin::pools().value()) std::cout << pool.job << " " << pool.checkpoints << "\n";
//   ebb::admin::drain("slurm-4711", std::chrono::seconds(60)).value();
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ebbtide/error.hpp"
#include "ebbtide/stats.hpp"

namespace ebb::admin {

/// A process of a pool. Checkpoints count if they are listed whole, and not written to the store yet.
struct PoolProcess {
  std::uint64_t rank = 0;
  pid_t pid = 0;
  bool alive = false;
  bool elsewhere = false;     ///< alive in another PID namespace (another container's), where `pid` is its number
  std::uint64_t share = 0;    ///< bytes that it is sure of
  std::uint64_t claimed = 0;  ///< slabs that it has
  std::uint64_t checkpoints = 0;
  std::uint64_t bytes = 0;  ///< of these
};

struct Pool {
  std::string job;
  std::filesystem::path file;
  std::optional<Error> error;       ///< why it cannot be read: nothing below is known then
  std::filesystem::path directory;  ///< the store that it is written to; empty: ephemeral stores
  std::uint64_t budget = 0, chunk = 0, slab = 0;
  enum class Agent { none, program, thread } agent = Agent::none;
  pid_t agent_pid = 0;  ///< 0: none
  std::vector<PoolProcess> processes;
  std::uint64_t checkpoints = 0, bytes = 0;  ///< of all processes
};

/// All pools of this user on this node, by job; none without a directory for them. Nothing is changed, and no process
/// is waited for. Errors: those of the directory (not_permitted, unsupported, io_error).
Result<std::vector<Pool>> pools();

/// A store that lends memory of its device to other processes (Options::lend).
struct Lender {
  std::string group;  ///< the job whose processes may borrow it; "all"
  pid_t pid = 0;
  std::optional<int> gpu;              ///< whose memory it is; none: ordinary memory
  std::uint64_t offered = 0;           ///< bytes that others may use
  double share = 1;                    ///< of its link's rate, at which they may copy (Options::lend_share)
  std::vector<LeaseInfo> leases;       ///< at most 63
  std::uint64_t leases_not_shown = 0;  ///< that there are beside these
};

/// All living lenders of this user on this node, by group and process. Errors: as pools().
Result<std::vector<Lender>> lenders();

struct Drained {
  std::uint64_t checkpoints = 0, bytes = 0;  ///< that were listed when it was called
  bool removed = false;                      ///< no process uses the pool any more, and it is gone
};

/// Waits until all that the processes of a job have handed over is durable. If they have all ended and no agent does
/// that, this process writes it to the job's own store, and removes the pool, as the next start of any job would.
/// `go_on` is asked some 100 times a second; false ends the waiting. Errors: lost (there is no such pool), damaged and
/// unsupported (the pool is left as it is), timed_out, cancelled by `go_on`; those of the store, named; io_error, too,
/// if some of it is lost meanwhile.
Result<Drained> drain(const std::string& job, std::chrono::milliseconds timeout,
                      const std::function<bool()>& go_on = {});

}  // namespace ebb::admin
