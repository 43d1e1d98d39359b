#pragma once
// Recorded runs, the states that a machine may come back to in the midst of them, and what must hold in each.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reliability/cpp/judge.hpp"
#include "reliability/cpp/script.hpp"
#include "reliability/cpp/subject.hpp"
#include "reliability/cpp/trial.hpp"
#include "tests/doubles/power_loss.hpp"

namespace ebb::trials {

using doubles::Journal;
using doubles::MemoryFiles;
using doubles::PowerLoss;

struct Recorded {
  Script script;
  SubjectOptions options;
  Journal journal;
  std::string name;
  std::size_t killed = 0;     // of a second process: how much of the journal is the first one's, which was killed there
  std::uint64_t failing = 0;  // the sync that failed, from 1
  std::size_t opened = 0;     // and where it had opened the store
  PowerLoss::Torn torn = PowerLoss::Torn::sectors;  // what the disk makes of a torn write
};

/// A script carried out to its end. `failing`: that sync of a file fails, from 1, and what was lost by it is noted.
Recorded record(std::uint64_t seed, const SubjectOptions& options, const ScriptOptions& how, std::uint64_t failing = 0);

/// The process of `first` is killed behind the n-th entry, and the machine goes on. The next one opens the store, drops
/// one and closes it; another one writes one more. At the level "storage" all that an opening finds is noted to be
/// durable: so it is promised. What the first did not sync still is not.
/// `collects`: before all that, `ebbtide gc` frees the bytes that no reader can reach.
Recorded record_next(const Recorded& first, std::size_t n, bool collects = false);

/// Judges states of one recorded run, which outlives it.
class StateJudge {
 public:
  StateJudge(const Recorded& recorded, bool machine_stopped);

  /// `ended_well`: the last that happened is a close, and the machine went on. `depth`: how often the power is lost
  /// again while it is mended.
  Verdict judge(const std::shared_ptr<MemoryFiles>& files, std::vector<Event> events, bool ended_well,
                std::uint64_t seed, int depth);

 private:
  using Files = std::shared_ptr<MemoryFiles>;
  void add(const Verdict& verdict, const char* where);
  void wrong(Outcome outcome, const std::string& what) { add({outcome, {what}}, ""); }
  Result<std::unique_ptr<Subject>> open(const Files& files, bool readonly);
  void look_beside_rot(const Files& files, const std::vector<Event>& events);
  void look_at(const Files& files, const std::vector<Event>& events, bool ended_well);
  void mend(const Files& files, const std::vector<Event>& events);

  const Recorded& recorded_;
  Script script_;
  const Rules rules_;
  Verdict out_;
};

/// How much had happened when its first process had opened the store.
std::size_t first_opening(const Recorded& recorded);

/// Moments at which the machine stops: mostly any, often right behind a promise, none before the first process was
/// killed.
class Moments {
 public:
  Moments(const Recorded& recorded, const PowerLoss& power);
  std::size_t draw(std::mt19937_64& random) const;

 private:
  std::size_t first_, last_;
  std::vector<std::size_t> notes_;
};

/// How many seeded states it takes until one breaks a promise, and what it said; 0: none of `most` does.
std::size_t states_until_red(const Recorded& recorded, std::size_t most, std::uint64_t seed, Report& report,
                             std::string& what);

}  // namespace ebb::trials
