#include "share/pool/job.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <unistd.h>

#include "base/text.hpp"
#include "options/defaults.hpp"
#include "os/process_id.hpp"
#include "storage/storage.hpp"

namespace ebb::share {
namespace {

using options::Environment;

constexpr std::size_t kMaxId = 64;

struct Scheduler {
  const char* name;
  const char* id;
  const char* index;  // of a job in an array, whose jobs share an id; empty: the id has it
};
// A scheduler that runs within another one's job comes first.
constexpr std::array<Scheduler, 5> kSchedulers{{{"flux", "FLUX_JOB_ID", ""},
                                                {"slurm", "SLURM_JOB_ID", ""},
                                                {"pbs", "PBS_JOBID", ""},
                                                {"lsf", "LSB_JOBID", "LSB_JOBINDEX"},
                                                {"pjm", "PJM_JOBID", ""}}};

// A launcher's own ids of what it started. MPICH and torchrun have none: their processes are children of one process.
constexpr std::array<Scheduler, 2> kLaunchers{{{"pmix", "PMIX_NAMESPACE", ""}, {"pals", "PALS_APID", ""}}};

std::string_view value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(std::string_view(name));
  return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

std::string escaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += is_plain(c) ? std::string(1, c) : std::string{'%', digits[byte / 16], digits[byte % 16]};
  }
  return out;
}

Result<std::string> named(const std::string& kind, const char* variable, std::string_view id, std::string_view index) {
  const std::string text = std::string(id) + (index.empty() ? "" : ":") + std::string(index);
  if (text.size() > kMaxId) return base::wrong_value(variable, id, "at most " + std::to_string(kMaxId) + " bytes");
  return kind + "-" + escaped(text);
}

}  // namespace

Ancestry Ancestry::of_process() { return {::getppid(), ::getpgrp(), ::getsid(0), ::getpid(), os::pid_namespace()}; }

namespace {

// Empty: none says.
Result<std::string> job_of(std::span<const Scheduler> all, const Environment& environment) {
  for (const Scheduler& one : all) {
    const std::string_view id = value_of(environment, one.id);
    if (!id.empty()) return named(one.name, one.id, id, value_of(environment, one.index));
  }
  return std::string();
}

// By the scheduler or the user. Empty: neither says.
Result<std::string> given_job(const Environment& environment) {
  if (auto job = job_of(kSchedulers, environment); !job || !(*job).empty()) return job;
  constexpr const char* kVariable = "EBBTIDE_JOB";
  if (const auto id = value_of(environment, kVariable); !id.empty()) return named("job", kVariable, id, {});
  return std::string();
}

// Empty: it has ended, or belongs to another PID namespace.
std::string process_name(os::Files& files, pid_t pid, std::uint64_t pid_namespace) {
  const auto found = pid > 0 ? os::process_id(files, pid) : Error{Errc::lost, {}};
  if (!found) return {};
  return "process-" + std::to_string((*found).pid) + "-" + std::to_string((*found).start) +
         (pid_namespace == 0 ? "" : "-in-" + std::to_string(pid_namespace));
}

}  // namespace

Result<std::string> lending_group(const Environment& environment) {
  auto job = given_job(environment);
  return job && (*job).empty() ? Result<std::string>("all") : job;
}

Result<std::string> job_identity(const Environment& environment, os::Files& files, Ancestry ancestry) {
  if (auto job = given_job(environment); !job || !(*job).empty()) return job;
  const auto ranks = options::local_ranks(environment);
  if (!ranks) return ranks.error();
  const auto process = [&](pid_t pid) { return process_name(files, pid, ancestry.pid_namespace); };
  if (*ranks > 1) {
    if (auto job = job_of(kLaunchers, environment); job && !(*job).empty()) return job;
    if (auto parent = process(ancestry.parent); !parent.empty()) return parent;
    return Error{
        Errc::unsupported,
        "a launcher's variables say that " + std::to_string(*ranks) +
            " processes of this node share the pool, and nothing says which: the process that started this one "
            "has ended or belongs to another PID namespace; give all of them the same EBBTIDE_JOB"};
  }
  if (auto leader = process(ancestry.group); !leader.empty()) return leader;
  // A group keeps its number until its last process ends.
  if (auto leader = process(ancestry.session); !leader.empty())
    return leader + "-group-" + std::to_string(ancestry.group);
  if (auto itself = process(ancestry.self); !itself.empty()) return itself;
  return Error{Errc::unsupported, "/proc does not show this process: expected /proc of its PID namespace"};
}

std::string job_of_directory(const std::filesystem::path& directory) {
  std::error_code ignored;
  const std::string path = std::filesystem::absolute(directory, ignored).lexically_normal().string();
  const storage::Checksum sum = storage::checksum_of(std::as_bytes(std::span(path)));
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name = "directory-";
  for (const std::byte byte : sum)
    (name += digits[std::to_integer<unsigned>(byte) >> 4]) += digits[std::to_integer<unsigned>(byte) & 15];
  return name;
}

bool is_job_identity(std::string_view text) {
  return !text.empty() && text.size() <= kMaxJob &&
         std::ranges::all_of(text, [](char c) { return is_plain(c) || c == '%'; });
}

}  // namespace ebb::share
