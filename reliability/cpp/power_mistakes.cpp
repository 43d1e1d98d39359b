// Power loss, with one sync or one order left out of the code: a trial that is not turned red by that proves nothing.
#include <algorithm>
#include <stdexcept>

#include "reliability/cpp/power_states.hpp"
#include "reliability/cpp/sites.hpp"
#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

// Not every script makes every sync, and not every state shows what one is for: scripts are drawn until one does.
constexpr std::size_t kScripts = 40;
constexpr std::size_t kKills = 12;  // moments at which the process of a script is killed, and syncs of it that fail

constexpr ScriptOptions kScript{.openings = 4, .writes = 8, .largest = 150'000};

class Mistaken {
  using Of = Mistake::Of;

 public:
  Mistaken(const TrialOptions& options, Report& report)
      : options_(options), report_(report), most_(options.short_form ? 400 : 1500) {}

  void try_one(const Mistake& mistake) {
    std::size_t made = 0;
    for (std::size_t i = 0; i < kScripts; ++i) {
      for (const Recorded* right : runs(i, mistake.of)) {
        const auto wrong = mistake.make(right->journal, mistake.name, {right->killed, right->opened});
        if (!wrong) continue;
        ++made;
        Recorded run = *right;
        run.journal = *wrong;
        run.name = std::string(mistake.name) + ", " + run.name;
        std::string what;
        const std::size_t states =
            states_until_red(run, mistake.of == Of::well ? most_ : most_ / kKills, options_.seed, report_, what);
        if (states) return tell(mistake, "red    ", "after " + std::to_string(states) + ": " + run.name + ": " + what);
      }
    }
    tell(mistake, "GREEN  ", "in " + std::to_string(made) + " runs");
    report_.violation("without '" + std::string(mistake.name) + "' no promise was broken, in " + std::to_string(made) +
                      " runs");
  }

 private:
  void tell(const Mistake& mistake, const std::string& how, const std::string& what) {
    report_.say(how + std::string(mistake.name) + " " + what);
    const bool red = how.starts_with("red");
    report_.count_by((red ? "red: " : "green: ") + std::string(mistake.name));
    report_.count(red ? Outcome::exact : Outcome::silent_wrong);
  }

  // The i-th script as it is; or killed at some moments and gone on with; or with syncs that fail, in turn.
  std::vector<const Recorded*> runs(std::size_t i, Of of) {
    while (runs_.size() <= i) runs_.push_back(draw(runs_.size()));
    Drawn& drawn = runs_[i];
    if (of == Of::well) return {&drawn.whole};
    std::vector<const Recorded*> out;
    if (of == Of::failing) {
      for (std::uint64_t sync = 1; drawn.failing.size() < kKills; sync += 2) {
        report_.begin("failing a sync of " + drawn.whole.name);
        drawn.failing.push_back(record(drawn.whole.script.seed, drawn.whole.options, kScript, sync));
        expect_green(drawn.failing.back(), most_ / kKills);
      }
      for (const Recorded& one : drawn.failing) out.push_back(&one);
      return out;
    }
    if (drawn.killed.empty()) {
      for (const std::size_t n : moments(drawn.whole, i)) {
        report_.begin("killing " + drawn.whole.name);
        drawn.killed.push_back(record_next(drawn.whole, n));
      }
    }
    for (const Recorded& one : drawn.killed) out.push_back(&one);
    return out;
  }

  // At which the process is killed: when it has just removed something, and others.
  std::vector<std::size_t> moments(const Recorded& run, std::size_t i) const {
    std::mt19937_64 random(options_.seed + i);
    const std::size_t opened = first_opening(run), size = run.journal.changes.size();
    std::vector<std::size_t> out;
    for (const auto& change : run.journal.changes) {
      const bool removed = change.kind == doubles::Change::Kind::remove && change.number > opened;
      if (removed && out.size() < kKills / 2) out.push_back(change.number);
    }
    while (out.size() < kKills) out.push_back(opened + random() % (size - opened + 1));
    return out;
  }

  struct Drawn {
    Recorded whole;
    std::vector<Recorded> killed, failing;
  };

  // What follows says nothing unless this is green.
  Drawn draw(std::size_t i) {
    SubjectOptions subject;
    subject.layer = Layer::storage;
    report_.begin("recording");
    Drawn out{record(options_.seed * 1000 + i, subject, kScript), {}, {}};
    expect_green(out.whole, most_ / 2);
    return out;
  }

  void expect_green(const Recorded& run, std::size_t states) {
    std::string what;
    if (states_until_red(run, states, options_.seed, report_, what))
      report_.violation(run.name + ", no mistake: " + what);
  }

  const TrialOptions& options_;
  Report& report_;
  const std::size_t most_;
  std::vector<Drawn> runs_;
};

}  // namespace

void run_power_without(const TrialOptions& options, Report& report) {
  const std::uint64_t seeds = options.count ? options.count : options.short_form ? 1 : 5;
  bool any = false;
  for (std::uint64_t i = 0; i < seeds; ++i) {  // none of them may be a lucky one
    TrialOptions one = options;
    one.seed += i * 7919;
    Mistaken with(one, report);
    for (const Mistake& mistake : mistakes()) {
      if (options.without != "all" && options.without != mistake.name) continue;
      any = true;
      with.try_one(mistake);
    }
  }
  if (!any) throw std::runtime_error("no sync and no order is called '" + options.without + "'");
}

}  // namespace ebb::trials
