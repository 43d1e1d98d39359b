// Power loss under a store of two directories, a local and a shared one: of either, of both, and of the local one for
// good.
#include <array>
#include <random>
#include <stdexcept>

#include "reliability/cpp/power_states.hpp"
#include "reliability/cpp/runner.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

using Files = std::shared_ptr<MemoryFiles>;
using Change = doubles::Change;

constexpr const char *kLocal = "/local", *kShared = "/shared", *kElsewhere = "/elsewhere";
constexpr Version kLast = 1'000'000;

struct TwoDirectories {
  Script script;
  SubjectOptions options;
  Journal journal;
  std::string name;
};

TwoDirectories record_both(std::uint64_t seed, bool waits_below, const ScriptOptions& how) {
  TwoDirectories out{make_script(seed, how), {}, {}, {}};
  out.options.directory = kLocal;
  out.options.shared = kShared;
  out.options.waits_below = waits_below;
  out.options.capacity = 2 << 20;  // a cache of the shared directory
  out.options.keep_last = out.script.keep_last;
  out.options.keep_every = out.script.keep_every;
  const auto files = std::make_shared<MemoryFiles>();
  Runner runner{out.script, files, out.options, [&](const Event& event) { files->note(text_of(event)); }};
  if (how.retention) runner.allow_dropped();
  runner.run();
  out.journal = files->journal();
  out.name = std::string(waits_below ? "shared" : "storage") + (how.retention ? ", retention" : "") + ", script " +
             std::to_string(seed);
  return out;
}

// What was written to a directory is on its disks.
void sync_all(MemoryFiles& files, const std::filesystem::path& directory) {
  std::vector<std::string> names;
  static_cast<void>(files.list(directory, names));
  for (const std::string& name : names) {
    const auto opened = files.open(directory / name, os::Open::write, false);
    if (!opened) continue;
    static_cast<void>(files.sync(static_cast<int>(opened.value)));
    static_cast<void>(files.close(static_cast<int>(opened.value)));
  }
  static_cast<void>(files.sync_directory(directory));
  static_cast<void>(files.sync_directory("/"));
}

enum class Loses : std::uint8_t { both, local, shared };
constexpr std::array<const char*, 3> kLosers{"both lose power", "the local one loses power",
                                             "the shared one loses power"};

Files state_of(const PowerLoss& power, std::size_t n, Loses what, std::uint64_t lot) {
  if (what == Loses::both) return power.crash(n, lot);
  const Files goes_on = power.killed(n);
  sync_all(*goes_on, what == Loses::local ? kShared : kLocal);
  const PowerLoss then(goes_on->journal());
  return then.crash(then.size(), lot);
}

/// One state, as those who read and the next process meet it.
class BothJudge {
 public:
  BothJudge(const TwoDirectories& recorded, Files files, std::vector<Event> events)
      : script_(recorded.script), options_(recorded.options), files_(std::move(files)), events_(std::move(events)) {
    script_.made.push_back({"adjoint", kLast, 0, 10'000});
  }

  /// `lost`: the local directory is, and the next process goes on from the shared one.
  Verdict run(bool lost) && {
    const Rules sent{.sent_alone = true};
    SubjectOptions alone = options_;
    alone.directory = kShared;
    alone.shared.clear();
    look_at(options_, "read only: ", {});
    look_at(alone, "the shared directory alone: ", sent);
    SubjectOptions next = options_;
    if (lost) next.directory = kElsewhere;
    if (!go_on(next, lost ? sent : Rules{})) return std::move(out_);
    // Closing has waited for all that there is, if it waits.
    look_at(next, "opened again: ", lost ? sent : Rules{});
    look_at(alone, "opened again, the shared directory alone: ", lost || !options_.waits_below ? sent : Rules{});
    return std::move(out_);
  }

 private:
  bool is_there() const {
    return std::ranges::any_of(events_, [](const Event& event) { return event.kind == Event::Kind::opened; });
  }
  void wrong(Outcome outcome, const std::string& what) {
    out_.outcome = std::max(out_.outcome, outcome);
    out_.violations.push_back(what);
  }
  void judge_what(Subject& store, const std::string& as, const Rules& rules) {
    const Verdict found = judge(script_, events_, look(store, script_.histories()), rules);
    out_.outcome = std::max(out_.outcome, found.outcome);
    for (const std::string& what : found.violations) out_.violations.push_back(as + what + store.said());
  }

  void look_at(SubjectOptions options, const std::string& as, const Rules& rules) {
    options.readonly = true;
    auto store = open_subject(files_, options);
    if (!store) {
      if (is_there()) wrong(Outcome::silent_wrong, as + "it was opened, and cannot be: " + store.error().message);
      out_.outcome = std::max(out_.outcome, Outcome::clear_error);
      return;
    }
    judge_what(**store, as, rules);
    static_cast<void>((*store)->close());
  }

  bool go_on(const SubjectOptions& options, const Rules& rules) {
    auto store = open_subject(files_, options);
    if (!store) {
      wrong(Outcome::clear_error, "it cannot be opened to go on: " + store.error().message);
      return false;
    }
    events_.push_back({Event::Kind::opened, 0});
    judge_what(**store, "opened to be written: ", rules);
    const std::size_t extra = script_.made.size() - 1;
    const Made& made = script_.made[extra];
    events_.push_back({Event::Kind::begun, extra});
    auto done = (*store)->write(made, script_.contents(made));
    if (done) done = (*store)->send(made.history, made.version);
    if (done) events_.push_back({Event::Kind::sent, extra});
    const auto closed = (*store)->close();
    if (!done || !closed) {
      wrong(Outcome::clear_error, "the next one: " + (done ? closed : done).error().message);
      return false;
    }
    events_.push_back({Event::Kind::closed, 0});
    return true;
  }

  Script script_;
  const SubjectOptions options_;
  const Files files_;
  std::vector<Event> events_;
  Verdict out_;
};

void count(Report& report, const std::string& where, const Verdict& verdict) {
  report.count(verdict.outcome);
  if (!verdict.violations.empty()) report.violation(where + ": " + verdict.violations.front());
}

void try_one(const TwoDirectories& recorded, std::size_t prefixes, std::size_t states, std::uint64_t seed,
             Report& report) {
  const PowerLoss power(recorded.journal);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < prefixes; ++i) {
    const std::size_t n = (power.size() * i + random() % power.size()) / prefixes;
    const std::string where = recorded.name + ", prefix " + std::to_string(n);
    report.begin(where);
    const bool lost = i % 2 == 0;
    count(report, where, BothJudge(recorded, power.prefix(n), events_of(power.notes(n))).run(lost));
    report.count_by("prefixes");
    if (lost) report.count_by("the local directory is lost then");
  }
  const std::vector<std::size_t> promises = power.all(Change::Kind::note);
  for (std::size_t i = 0; i < states; ++i) {
    const std::size_t n = random() % 3 == 0 ? promises[random() % promises.size()] : random() % (power.size() + 1);
    const auto loses = static_cast<Loses>(i % 3);
    const std::uint64_t lot = random();
    const bool lost = random() % 3 == 0;
    const std::string where = recorded.name + ", " + kLosers[i % 3] + (lost ? ", local lost" : "") + ", state " +
                              std::to_string(n) + ", seed " + std::to_string(lot);
    report.begin(where);
    count(report, where, BothJudge(recorded, state_of(power, n, loses, lot), events_of(power.notes(n))).run(lost));
    report.count_by(kLosers[i % 3]);
    if (lost) report.count_by("the local directory is lost then");
  }
}

}  // namespace

void run_shared_power(const TrialOptions& options, Report& report) {
  const std::uint64_t count = options.count ? options.count : options.short_form ? 60 : 6000;
  const std::size_t runs = options.short_form ? 3 : 12;
  const ScriptOptions plain{.openings = 3, .writes = options.short_form ? std::size_t{5} : 10, .largest = 300 << 10};
  ScriptOptions retention = plain;
  retention.retention = true;
  for (std::size_t i = 0; i < runs; ++i) {
    report.begin("recording");
    const TwoDirectories recorded = record_both(options.seed * 1000 + i, i % 3 != 1, i % 3 == 2 ? retention : plain);
    const std::uint64_t share = count * (i + 1) / runs - count * i / runs;
    try_one(recorded, share / 4, share - share / 4, options.seed + i, report);
  }
}

}  // namespace ebb::trials
