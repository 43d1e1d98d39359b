#pragma once
// Which job a process belongs to: the processes of one user, job and node share a pool.
#include <string>
#include <string_view>
#include <sys/types.h>

#include "ebbtide/error.hpp"
#include "options/environment.hpp"
#include "os/files.hpp"

namespace ebb::node {

/// The longest job_identity(). With an ending it is still the name of a file.
inline constexpr std::size_t kMaxJob = 208;

/// Where a process comes from.
struct Ancestry {
  pid_t parent = 0;
  pid_t group = 0;  // the leader of its process group
  static Ancestry of_process();
};

/// The scheduler's id of the job, or else `EBBTIDE_JOB`, or else the process that launched this one, with its start:
/// the parent, where a launcher's variables say that it started several processes here (local_ranks()), or the leader
/// of the process group, which is a shell's whole command. Letters, digits and "._-%" only; different jobs differ.
/// Errors: invalid_argument (an id of more than 64 bytes), unsupported (the leader has ended: EBBTIDE_JOB is needed).
Result<std::string> job_identity(const runtime::Environment& environment, platform::Files& files, Ancestry ancestry);
/// The processes of one user on a node that may lend memory to one another: those of the scheduler's job, or of
/// `EBBTIDE_JOB`, or else all. Error invalid_argument: an id of more than 64 bytes.
Result<std::string> lending_group(const runtime::Environment& environment);
/// Whether a text has the form of a job's identity.
bool is_job_identity(std::string_view text);

}  // namespace ebb::node
