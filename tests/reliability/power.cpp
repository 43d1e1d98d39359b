// Power loss: what the machine may come back to, at every moment of a recorded run.
#include <algorithm>
#include <iostream>
#include <random>
#include <stdexcept>

#include "storage/segment_scan.hpp"
#include "tests/reliability/judge.hpp"
#include "tests/reliability/runner.hpp"
#include "tests/reliability/sites.hpp"
#include "tests/reliability/trial.hpp"

namespace ebb::trials {
namespace {

using platform::testing::MemoryFiles;
using platform::testing::PowerLoss;
using Change = platform::testing::Change;
using Files = std::shared_ptr<MemoryFiles>;

constexpr Version kExtra = 1'000'000;

struct Recorded {
  Script script;
  SubjectOptions options;
  Journal journal;
  std::string name;
};

Recorded record(std::uint64_t seed, const SubjectOptions& options, const ScriptOptions& how) {
  Recorded out{make_script(seed, how), options, {}, {}};
  out.options.keep_last = out.script.keep_last;
  out.options.keep_every = out.script.keep_every;
  const auto files = std::make_shared<MemoryFiles>();
  Runner runner{out.script, files, options, [&](const Event& event) { files->note(text_of(event)); }};
  if (how.retention) {  // what it has dropped by itself is not there to be waited for
    runner.failed = [](const Step& step, const Error& error) {
      const bool gone = error.code == Errc::unknown_version || error.code == Errc::dropped;
      if (step.kind != Step::Kind::wait || !gone) throw std::runtime_error(error.message);
    };
  }
  runner.run();
  out.journal = files->journal();
  out.name = std::string(options.layer == Layer::store ? "store" : "storage") + (options.synced ? "" : ", process") +
             (how.retention ? ", retention" : "") + ", script " + std::to_string(seed);
  return out;
}

/// Judges states of one recorded run.
class Judge {
 public:
  Judge(const Recorded& recorded, bool machine_stopped)
      : recorded_(recorded),
        script_(recorded.script),
        rules_{.kept = recorded.options.synced || !machine_stopped,
               .whole = recorded.options.synced || !machine_stopped} {
    script_.made.push_back({"adjoint", kExtra, 0, 10'000});
  }

  /// `ended_well`: the last that happened is a close, and the machine went on. `depth`: how often the power is lost again while it is mended.
  Verdict judge(const Files& files, std::vector<Event> events, bool ended_well, std::uint64_t seed, int depth) {
    out_ = {};
    look_at(files, events, ended_well);
    const std::size_t before = files->changes();
    mend(files, events);
    if (depth > 0 && recorded_.options.synced) {
      const PowerLoss again(files->journal());
      std::mt19937_64 random(seed);
      const std::size_t n = before + random() % (again.size() - before + 1);
      std::vector<Event> more = events;
      const auto notes = events_of(again.notes(n));
      more.insert(more.end(), notes.begin(), notes.end());
      look_at(again.crash(n, seed), more, false);
    }
    return out_;
  }

 private:
  void add(const Verdict& verdict, const char* where) {
    out_.outcome = std::max(out_.outcome, verdict.outcome);
    for (const std::string& what : verdict.violations) out_.violations.push_back(std::string(where) + what);
  }
  void wrong(Outcome outcome, const std::string& what) { add({outcome, {what}}, ""); }

  Result<std::unique_ptr<Subject>> open(const Files& files, bool readonly) {
    SubjectOptions options = recorded_.options;
    options.readonly = readonly;
    return open_subject(files, options);
  }

  static bool is_there(const std::vector<Event>& events) {
    return std::ranges::any_of(events, [](const Event& event) { return event.kind == Event::Kind::opened; });
  }

  // As a program that only reads meets it.
  void look_at(const Files& files, const std::vector<Event>& events, bool ended_well) {
    auto store = open(files, true);
    if (!store) {
      const bool none = store.error().code == Errc::not_a_store && !is_there(events);
      if (!none) out_.outcome = std::max(out_.outcome, Outcome::clear_error);
      if (is_there(events) && rules_.kept)
        wrong(Outcome::silent_wrong, "it was opened, and is no store: " + store.error().message);
      return;
    }
    add(trials::judge(script_, events, look(**store, script_.histories()), rules_), "");
    static_cast<void>((*store)->close());
    auto scanned = storage::scan_store(*files, recorded_.options.directory, true);
    if (!scanned) return wrong(Outcome::clear_error, "it cannot be scanned: " + scanned.error().message);
    for (const storage::Damage& damage : scanned->damages) {
      if (damage.file.filename() == storage::kIndexFile && rules_.whole)
        wrong(Outcome::clear_error, "the index: " + damage.what);
    }
    if (ended_well && rules_.kept && !scanned->from_index)
      wrong(Outcome::clear_error, "it was closed, and its index does not serve");
  }

  // As the next program meets it, which writes one more.
  void mend(const Files& files, const std::vector<Event>& events) {
    std::vector<Event> more = events;
    const auto tell = [&](Event::Kind kind) {
      const Event event{kind, script_.made.size() - 1};
      files->note(text_of(event));
      more.push_back(event);
    };
    {
      auto store = open(files, false);
      if (!store) {
        if (rules_.kept) wrong(Outcome::clear_error, "it cannot be opened to go on: " + store.error().message);
        return;
      }
      tell(Event::Kind::opened);
      add(trials::judge(script_, events, look(**store, script_.histories()), rules_), "opened to be written: ");
      const Made& extra = script_.made.back();
      tell(Event::Kind::begun);
      auto done = (*store)->write(extra, script_.contents(extra));
      if (done) done = (*store)->wait(extra.history, extra.version);
      if (!done) return wrong(Outcome::clear_error, "the next one cannot be written: " + done.error().message);
      tell(Event::Kind::durable);
      if (const auto closed = (*store)->close(); !closed)
        return wrong(Outcome::clear_error, "closing it: " + closed.error().message);
      tell(Event::Kind::closed);
    }
    auto store = open(files, true);
    if (!store) return wrong(Outcome::clear_error, "it cannot be opened again: " + store.error().message);
    const Verdict last = trials::judge(script_, more, look(**store, script_.histories()), rules_);
    for (const std::string& what : last.violations) out_.violations.push_back("opened again: " + what);
  }

  const Recorded& recorded_;
  Script script_;
  const Rules rules_;
  Verdict out_;
};

bool ended_well(const PowerLoss& power, std::size_t n) {
  return n > 0 && power.change(n).kind == Change::Kind::note && power.change(n).text.starts_with("closed");
}

// Mostly anywhere; often right behind a promise.
std::size_t draw_moment(const PowerLoss& power, const std::vector<std::size_t>& notes, std::mt19937_64& random) {
  if (!notes.empty() && random() % 3 == 0) return notes[random() % notes.size()];
  return random() % (power.size() + 1);
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
  Judge judge(recorded, false);
  for (std::size_t n = 0; n <= power.size(); n += step) {
    const std::string where = told(recorded, "prefix", n, 0);
    report.begin(where);
    note(report, where, judge.judge(power.prefix(n), events_of(power.notes(n)), ended_well(power, n), n, 0));
    report.count_by("prefixes");
  }
}

void try_states(const Recorded& recorded, std::size_t states, std::uint64_t seed, Report& report) {
  const PowerLoss power(recorded.journal);
  Judge judge(recorded, true);
  const auto notes = power.all(Change::Kind::note);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < states; ++i) {
    const std::size_t n = draw_moment(power, notes, random);
    const std::uint64_t lot = random();
    const std::string where = told(recorded, "state", n, lot);
    const bool again = i % 4 == 0;
    report.begin(where);
    note(report, where, judge.judge(power.crash(n, lot), events_of(power.notes(n)), false, lot, again));
    report.count_by(recorded.options.synced ? "states" : "states, process");
    if (again && recorded.options.synced) report.count_by("states, lost again while mended");
  }
}

// How many states it takes until one breaks a promise; 0: none does.
std::size_t states_until_red(const Recorded& right, const Mistake& mistake, std::size_t most, std::uint64_t seed,
                             Report& report, std::string& what) {
  Recorded wrong = right;
  if (mistake.make != nullptr) wrong.journal = mistake.make(right.journal, mistake.name);
  const PowerLoss power(wrong.journal);
  Judge judge(wrong, true);
  const auto notes = power.all(Change::Kind::note);
  std::mt19937_64 random(seed);
  for (std::size_t i = 1; i <= most; ++i) {
    const std::size_t n = draw_moment(power, notes, random);
    const std::uint64_t lot = random();
    report.begin(std::string(mistake.name) + ", " + told(wrong, "state", n, lot));
    const Verdict verdict = judge.judge(power.crash(n, lot), events_of(power.notes(n)), false, lot, 0);
    if (verdict.violations.empty()) continue;
    what = verdict.violations.front();
    return i;
  }
  return 0;
}

void try_mistakes(const TrialOptions& options, const std::vector<Recorded>& right, Report& report) {
  const std::size_t most = options.short_form ? 1000 : 4000;
  for (const Recorded& one : right) {  // what follows says nothing unless this is green
    std::string what;
    if (states_until_red(one, {"no mistake", nullptr}, most, options.seed, report, what))
      report.violation(one.name + ": " + what);
  }
  bool any = false;
  for (const Mistake& mistake : mistakes()) {
    if (options.without != "all" && options.without != mistake.name) continue;
    any = true;
    std::string what;
    std::size_t states = 0;
    for (const Recorded& one : right) {
      states = states_until_red(one, mistake, most, options.seed, report, what);
      if (states) break;
    }
    std::cout << (states ? "red    " : "GREEN  ") << mistake.name
              << (states ? " after " + std::to_string(states) + ": " + what : "") << std::endl;
    report.count_by(std::string(states ? "red: " : "green: ") + mistake.name);
    report.count(Outcome::exact);
    if (!states) report.violation("without '" + std::string(mistake.name) + "' no promise was broken");
  }
  if (!any) throw std::runtime_error("no sync and no order is called '" + options.without + "'");
}

void check_sites(const Recorded& recorded, Report& report) {
  for (const auto& [site, numbers] : sites_of(recorded.journal)) {
    if (site == "opening") continue;  // of what a killed process left: KeptKilledTest has those
    const bool known = std::ranges::any_of(mistakes(), [&](const Mistake& one) { return site == one.name; });
    if (!known) report.violation(recorded.name + ": a sync that is no one's to leave out: " + site);
  }
}

}  // namespace

void run_power(const TrialOptions& options, Report& report) {
  std::vector<Recorded> runs;
  const ScriptOptions plain{.openings = 3, .writes = options.short_form ? std::size_t{6} : 12, .largest = 300 << 10};
  ScriptOptions retention = plain;
  retention.retention = true;
  const auto add = [&](Layer layer, bool synced, const ScriptOptions& how) {
    SubjectOptions subject;
    subject.layer = layer;
    subject.synced = synced;
    report.begin("recording");
    runs.push_back(record(options.seed * 1000 + runs.size(), subject, how));
    check_sites(runs.back(), report);
  };
  if (!options.without.empty()) {
    for (int i = 0; i < 3; ++i) add(Layer::storage, true, {.openings = 4, .writes = 8, .largest = 150'000});
    return try_mistakes(options, runs, report);
  }
  const int rounds = options.short_form ? 1 : 3;
  for (int round = 0; round < rounds; ++round) {
    add(Layer::storage, true, plain);
    add(Layer::store, true, plain);
    add(Layer::store, true, retention);
    if (!options.short_form || round == 0) add(Layer::storage, false, plain);
  }
  for (const Recorded& one : runs) try_prefixes(one, options.short_form ? 37 : 1, report);
  const std::uint64_t count = options.count ? options.count : options.short_form ? 200 : 10'000;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t share = count * (i + 1) / runs.size() - count * i / runs.size();
    try_states(runs[i], share, options.seed + i, report);
  }
}

}  // namespace ebb::trials
