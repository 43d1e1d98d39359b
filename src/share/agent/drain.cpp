#include "share/agent/drain.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "share/agent/dead_pools.hpp"
#include "share/agent/pool_survey.hpp"
#include "share/node_turn.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share {
namespace {

using EntryKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // a member, and the entry of a description

struct Waiting {
  std::set<EntryKey> objects;
  std::uint64_t bytes = 0;
};

// `among`: null for all.
Waiting waiting_in(const Survey& survey, const std::set<EntryKey>* among) {
  Waiting found;
  for (const SurveyedProcess& one : survey.processes) {
    for (const WholeObject& object : one.waiting) {
      const EntryKey listed{one.process.member.slot, one.process.member.generation, object.last().sequence};
      if (among != nullptr && !among->contains(listed)) continue;
      found.objects.insert(listed);
      found.bytes += bytes_of(object);
    }
  }
  return found;
}

Error not_written(const Survey& survey, const Waiting& left) {
  const std::uint64_t unsettled = survey.progress.written - std::min(survey.progress.written, survey.progress.settled);
  std::string why = "its agent, process " + std::to_string(survey.agent_pid) + ", is slow or stopped";
  if (survey.agent_pid == 0) why = "its agent, of another PID namespace, is slow or stopped";
  if (survey.agent == admin::Pool::Agent::none) why = "it has no agent: one of its processes starts the next";
  return {Errc::timed_out, "the pool of job " + survey.header.job +
                               " is not drained: " + std::to_string(left.objects.size()) + " checkpoints, " +
                               std::to_string(left.bytes) + " bytes, are not written, and " +
                               std::to_string(unsettled) + " are not on stable storage; " + why};
}

// `since`: as the draining began; what was lost before is no part of it.
Result<void> check_losses(const Survey& since) {
  const auto now = since.progress_now();
  if (!now) return now.error();
  const std::uint64_t lost = now->lost - std::min(now->lost, since.progress.lost);
  if (lost == 0) return {};
  return Error{Errc::io_error, "of the pool of job " + since.header.job + ", " + std::to_string(lost) +
                                   " checkpoints are lost: they could not be written to " +
                                   since.header.store.directory};
}

Error no_pool(const NodeSeams& seams, const std::string& job) {
  std::string all;
  const auto names = seams.memory->list();
  for (const std::string& name : names ? *names : std::vector<std::string>())
    if (is_pool_name(name)) all += (all.empty() ? "" : ", ") + job_of_pool(name);
  return {Errc::lost, "there is no pool of job " + job +
                          (all.empty() ? ", nor of any other" : ": expected one of those that have one: " + all)};
}

}  // namespace

Result<admin::Drained> drain_pool(const NodeSeams& seams, os::Files& files, os::Clock& clock, const std::string& job,
                                  std::chrono::milliseconds timeout, const std::function<bool()>& go_on) {
  const std::string name = pool_name(job);
  const std::int64_t until = clock.now() + timeout.count() * 1'000'000;
  std::optional<Survey> began;
  std::optional<Waiting> first;
  bool listed = true;                   // some of the first is in the lists yet
  std::optional<std::uint64_t> target;  // of the agent's progress, once the lists were seen without them
  admin::Drained drained;
  const auto done = [&](bool removed) -> Result<admin::Drained> {
    if (auto kept = began ? check_losses(*began) : Result<void>(); !kept) return kept.error();
    drained.removed = removed;
    return drained;
  };
  for (;;) {
    const auto looked = survey_pool(seams, files, name);
    const bool begun = looked || looked.error().code != Errc::lost;
    if (!looked && begun) return looked.error();
    if (begun && !*looked) {
      if (!first) return no_pool(seams, job);
      return done(true);
    }
    if (begun && !first) {
      first = waiting_in(**looked, nullptr);
      drained = {first->objects.size(), first->bytes, false};
      began = **looked;
    }
    if (!begun || (!(**looked).any_alive() && (**looked).agent == admin::Pool::Agent::none)) {
      NodeTurn turn(seams);
      if (auto called = turn.wait(clock, std::max<std::int64_t>(until - clock.now(), 0)); !called)
        return called.error();
      const auto finished = finish_if_dead(seams, files, clock, name);
      if (!finished) return finished.error();
      if (*finished) return done(true);
      if (begun && clock.now() >= until) return not_written(**looked, waiting_in(**looked, &first->objects));
    } else {
      const Survey& survey = **looked;
      const Waiting left = waiting_in(survey, &first->objects);
      // An agent removes a pool whose processes have all ended.
      if (left.objects.empty() && (survey.any_alive() || survey.processes.empty())) {
        if (!std::exchange(listed, false) && !target) target = survey.progress.written;
        if (target && survey.progress.settled >= *target) return done(false);
      }
      if (clock.now() >= until) return not_written(survey, left);
    }
    if (go_on && !go_on()) return Error{Errc::timed_out, "the draining of job " + job + "'s pool was ended"};
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

}  // namespace ebb::share
