// ebb_trials <trial> [--count N] [--seed S] [--dir DIR] [--short] [--without NAME]: reliability/run runs it, and counts
// what it says.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <unistd.h>

#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

constexpr Trial kTrials[] = {
    {"power", run_power},
    {"snapshot_power", run_power, true},
    {"flips", run_flips},
    {"truncate", run_truncate},
    {"hostile", run_hostile},
    {"faults", run_faults},
    {"limits", run_limits},
    {"kills", run_kills},
    {"snapshot_kills", run_kills, true},
    {"shared_kills", run_kills, false, true},
    {"shared_power", run_shared_power, false, true},
};

std::string next_of(int& at, int count, char** arguments) {
  if (at + 1 >= count) throw std::invalid_argument(std::string(arguments[at]) + " needs a value");
  return arguments[++at];
}

std::filesystem::path own_directory(const std::string& in) {
  std::string name =
      (in.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(in)) / "ebb-trials-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory can be made as " + name);
  return name;
}

int run(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "kills-child")
    return run_kills_child({arguments + 2, arguments + count});
  const Trial* trial = nullptr;
  TrialOptions options;
  std::string directory;
  options.program = "/proc/self/exe";
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--count")
      options.count = std::stoull(next_of(i, count, arguments));
    else if (word == "--seed")
      options.seed = std::stoull(next_of(i, count, arguments));
    else if (word == "--dir")
      directory = next_of(i, count, arguments);
    else if (word == "--without")
      options.without = next_of(i, count, arguments);
    else if (word == "--short")
      options.short_form = true;
    else {
      for (const Trial& one : kTrials) {
        if (word == one.name) trial = &one;
      }
      if (trial == nullptr) throw std::invalid_argument("there is no trial and no option '" + word + "'");
    }
  }
  if (trial == nullptr) throw std::invalid_argument("which trial?");
  options.snapshots = trial->snapshots;
  options.shared = trial->shared;
  options.directory = own_directory(directory);
  Report report;
  try {
    trial->run(options, report);
  } catch (const std::exception& error) {
    report.count(Outcome::crash);
    report.violation(report.current() + ": thrown: " + error.what());
  }
  std::error_code left;
  std::filesystem::remove_all(options.directory, left);
  report.done();
  ::_exit(report.violations() ? 1 : 0);  // what a trial has left to the end of its process is not judged
}

}  // namespace
}  // namespace ebb::trials

int main(int count, char** arguments) try {
  return ebb::trials::run(count, arguments);
} catch (const std::exception& error) {
  std::cerr << "ebb_trials: " << error.what() << "\n";
  return 2;
}
