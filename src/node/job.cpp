#include "node/job.hpp"

#include <algorithm>
#include <array>
#include <unistd.h>

#include "base/text.hpp"
#include "options/defaults.hpp"
#include "os/process_id.hpp"

namespace ebb::node {
namespace {

using runtime::Environment;

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
  if (text.size() > kMaxId) return runtime::wrong_value(variable, id, "at most " + std::to_string(kMaxId) + " bytes");
  return kind + "-" + escaped(text);
}

}  // namespace

Ancestry Ancestry::of_process() { return {::getppid(), ::getpgrp()}; }

namespace {

// By the scheduler or the user. Empty: neither says.
Result<std::string> given_job(const Environment& environment) {
  for (const Scheduler& scheduler : kSchedulers) {
    const std::string_view id = value_of(environment, scheduler.id);
    if (!id.empty()) return named(scheduler.name, scheduler.id, id, value_of(environment, scheduler.index));
  }
  constexpr const char* kVariable = "EBBTIDE_JOB";
  if (const auto id = value_of(environment, kVariable); !id.empty()) return named("job", kVariable, id, {});
  return std::string();
}

}  // namespace

Result<std::string> lending_group(const Environment& environment) {
  auto job = given_job(environment);
  return job && (*job).empty() ? Result<std::string>("all") : job;
}

Result<std::string> job_identity(const Environment& environment, platform::Files& files, Ancestry ancestry) {
  if (auto job = given_job(environment); !job || !(*job).empty()) return job;
  const auto ranks = runtime::local_ranks(environment);
  if (!ranks) return ranks.error();
  const auto launcher = platform::process_id(files, *ranks > 1 ? ancestry.parent : ancestry.group);
  if (!launcher) {
    return Error{Errc::unsupported,
                 "the process that launched this job has ended (" + launcher.error().message + "): set EBBTIDE_JOB"};
  }
  return "process-" + std::to_string((*launcher).pid) + "-" + std::to_string((*launcher).start);
}

bool is_job_identity(std::string_view text) {
  return !text.empty() && text.size() <= kMaxJob &&
         std::ranges::all_of(text, [](char c) { return is_plain(c) || c == '%'; });
}

}  // namespace ebb::node
