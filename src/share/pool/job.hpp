#pragma once
// Which job a process belongs to: the processes of one user, job and node share a pool.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "ebbtide/error.hpp"
#include "options/environment.hpp"
#include "os/files.hpp"

namespace ebb::share {

/// The longest job_identity(). With an ending it is still the name of a file.
inline constexpr std::size_t kMaxJob = 208;

/// Where a process comes from.
struct Ancestry {
  pid_t parent = 0;
  pid_t group = 0;    // the leader of its process group; 0: of another PID namespace, as the others
  pid_t session = 0;  // the leader of its session
  pid_t self = 0;
  std::uint64_t pid_namespace = 0;
  static Ancestry of_process();
};

/// The first of these that there is: the scheduler's id of the job; `EBBTIDE_JOB`; where a launcher's variables say
/// that it started several processes here (local_ranks()), its own id of the job or the parent; or else the leader of
/// the process group, which is a shell's whole command, the group in the session of a leader, or the process itself.
/// Processes are named with their start and PID namespace. Letters, digits and "._-%" only; different jobs differ.
/// Errors: invalid_argument (an id of more than 64 bytes), unsupported (nothing tells which of a launcher's processes
/// belong together: EBBTIDE_JOB is needed).
Result<std::string> job_identity(const options::Environment& environment, os::Files& files, Ancestry ancestry);
/// Of ranks that write VELOC's files: whichever jobs have a directory as their local one share its pool, one after the
/// other, and the agent that has not written all of the earlier one's is met by the next.
std::string job_of_directory(const std::filesystem::path& directory);
/// The processes of one user on a node that may lend memory to one another: those of the scheduler's job, or of
/// `EBBTIDE_JOB`, or else all. Error invalid_argument: an id of more than 64 bytes.
Result<std::string> lending_group(const options::Environment& environment);
/// Whether a text has the form of a job's identity.
bool is_job_identity(std::string_view text);

}  // namespace ebb::share
