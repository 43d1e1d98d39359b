// Power loss: what the machine may come back to, at every moment of a recorded run.
#include <algorithm>
#include <stdexcept>

#include "reliability/cpp/power_states.hpp"
#include "reliability/cpp/sites.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

using Change = doubles::Change;

bool ended_well(const PowerLoss& power, std::size_t n) {
  return n > 0 && power.change(n).kind == Change::Kind::note && power.change(n).text.starts_with("closed");
}

std::string told(const Recorded& recorded, const char* kind, std::size_t n, std::uint64_t seed) {
  return recorded.name + ", " + kind + " " + std::to_string(n) + ", seed " + std::to_string(seed);
}

void note(Report& report, const std::string& where, const Verdict& verdict) {
  report.count(verdict.outcome);
  if (!verdict.violations.empty()) report.violation(where + ": " + verdict.violations.front());
}

void try_prefixes(const Recorded& recorded, std::size_t step, Report& report) {
  const PowerLoss power(recorded.journal);
  StateJudge judge(recorded, false);
  for (std::size_t n = 0; n <= power.size(); n += step) {
    const std::string where = told(recorded, "prefix", n, 0);
    report.begin(where);
    note(report, where, judge.judge(power.prefix(n), events_of(power.notes(n)), ended_well(power, n), n, 0));
    report.count_by(step == 1 ? "every prefix" : "prefixes");
  }
}

void try_states(const Recorded& recorded, std::size_t states, std::uint64_t seed, Report& report,
                const std::string& as = "") {
  const PowerLoss power(recorded.journal);
  const Moments moments(recorded, power);
  StateJudge judge(recorded, true);
  std::mt19937_64 random(seed);
  const std::string by = std::string(!as.empty()       ? as
                                     : recorded.killed ? "killed, opened, then states"
                                                       : "states") +
                         (recorded.failing ? ", after a failed sync" : "") +
                         (recorded.torn == PowerLoss::Torn::blocks ? ", small ones, whole blocks torn" : "") +
                         (recorded.options.synced ? "" : ", process");
  for (std::size_t i = 0; i < states; ++i) {
    const std::size_t n = moments.draw(random);
    const std::uint64_t lot = random();
    const std::string where = told(recorded, "state", n, lot);
    const bool again = i % 4 == 0;
    report.begin(where);
    note(report, where, judge.judge(power.crash(n, lot, recorded.torn), events_of(power.notes(n)), false, lot, again));
    report.count_by(by);
    if (again && recorded.options.synced) report.count_by("lost again while it was mended");
  }
}

// kill -9, the next opening, and then the power goes. At the level "storage" what that opening found is there after
// that; at the level "process" it may be gone, and no wrong byte is given.
void try_killed_then_power(const Recorded& first, std::size_t kills, std::size_t states, std::uint64_t seed,
                           Report& report) {
  const std::size_t size = first.journal.changes.size();
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < kills; ++i) {
    const std::size_t n = first_opening(first) + random() % (size - first_opening(first) + 1);
    report.begin(told(first, "killed at", n, seed));
    try {
      try_states(record_next(first, n), states, random(), report);
    } catch (const std::exception& error) {  // it cannot be opened, or cannot go on
      report.count(Outcome::silent_wrong);
      report.violation(told(first, "killed at", n, seed) + ": " + error.what());
    }
  }
}

// kill -9, and `gc`, which is killed behind each of its changes, or the power goes then or later.
void try_collections(const Recorded& first, std::size_t kills, std::size_t states, std::uint64_t seed, Report& report) {
  const std::size_t size = first.journal.changes.size();
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < kills; ++i) {
    const std::size_t n = first_opening(first) + random() % (size - first_opening(first) + 1);
    report.begin(told(first, "collected at", n, seed));
    const Recorded next = record_next(first, n, true);
    const PowerLoss power(next.journal);
    StateJudge judge(next, false);
    for (std::size_t at = next.killed; at <= next.opened; ++at) {
      const std::string where = told(next, "gc killed at", at, 0);
      report.begin(where);
      note(report, where, judge.judge(power.prefix(at), events_of(power.notes(at)), false, at, 0));
      report.count_by("gc killed");
    }
    try_states(next, states, random(), report, "gc, then states");
  }
}

// No sync is made that `mistakes` does not leave out.
void check_sites(const Recorded& recorded, Report& report) {
  for (const auto& [site, numbers] : sites_of(recorded.journal)) {
    if (!is_known_site(site)) report.violation(recorded.name + ": a sync that is no one's to leave out: " + site);
  }
}

}  // namespace

void run_power(const TrialOptions& options, Report& report) {
  if (!options.without.empty()) return run_power_without(options, report);
  std::vector<Recorded> runs;
  const ScriptOptions plain{.openings = 3, .writes = options.short_form ? std::size_t{6} : 12, .largest = 300 << 10};
  ScriptOptions retention = plain;
  retention.retention = true;
  // Small ones share blocks, which a disk of such sectors may lose as a whole.
  ScriptOptions small = plain, small_retention = retention;
  small.largest = small_retention.largest = 700;
  small.writes = small_retention.writes = 3 * plain.writes;
  const auto add = [&](Layer layer, bool synced, const ScriptOptions& how) {
    SubjectOptions subject;
    subject.layer = layer;
    subject.synced = synced;
    report.begin("recording");
    runs.push_back(record(options.seed * 1000 + runs.size(), subject, how));
    if (how.largest == small.largest) runs.back().torn = PowerLoss::Torn::blocks;
    check_sites(runs.back(), report);
  };
  const int rounds = options.short_form ? 1 : 3;
  for (int round = 0; round < rounds; ++round) {
    const Layer whole = options.snapshots ? Layer::snapshots : Layer::store;
    const Layer part = options.snapshots ? Layer::snapshots : Layer::storage;
    add(part, true, plain);
    add(whole, true, plain);
    add(whole, true, retention);
    add(round % 2 ? whole : part, false, plain);
    if (options.snapshots) continue;
    add(part, true, small);
    add(whole, true, round % 2 ? small : small_retention);
  }
  for (const Recorded& one : runs) try_prefixes(one, options.short_form ? 37 : 1, report);
  // A sync fails, early or late: what is lost by that is told, and never comes back.
  for (int round = 0; round < 2 * rounds; ++round) {
    const std::size_t many = options.short_form ? 30 : 250;
    const auto nth = static_cast<std::uint64_t>(2 + 5 * round);
    report.begin("recording");
    SubjectOptions subject;
    subject.layer = options.snapshots ? Layer::snapshots : Layer::storage;
    const Recorded failing = record(options.seed * 1000 + 500 + nth, subject, plain, nth);
    try_states(failing, many, options.seed + nth, report);
  }
  // So many of each kind of run.
  const std::uint64_t count = options.count        ? options.count
                              : options.short_form ? 160
                              : options.snapshots  ? 5'000
                                                   : 17'000;
  const auto synced =
      static_cast<std::size_t>(std::ranges::count_if(runs, [](const Recorded& one) { return one.options.synced; }));
  for (std::size_t i = 0, nth = 0; i < runs.size(); ++i) {
    const std::uint64_t seed = options.seed + i;
    const bool promised = runs[i].options.synced;
    const std::size_t share = promised ? count * (nth + 1) / synced - count * nth / synced : count / 20;
    nth += promised;
    try_states(runs[i], share, seed, report);
    const std::size_t kills = options.short_form ? 3 : promised ? 20 : 40;
    try_killed_then_power(runs[i], kills, options.short_form ? 3 : 10, seed, report);
    if (options.snapshots)
      try_collections(runs[i], options.short_form ? 1 : 20, options.short_form ? 5 : 20, seed, report);
  }
}

}  // namespace ebb::trials
