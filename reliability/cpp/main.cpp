// ebb_trials <trial> [--count N] [--seed S] [--dir DIR] [--json FILE] [--short] [--without NAME]: reliability/run
// runs it.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <unistd.h>

#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

constexpr Trial kTrials[] = {
    {"power",
     "power loss: every prefix of what was written and synced, and states that lose, tear and reorder the rest",
     run_power},
    {"flips", "one byte of one file of a store is another", run_flips},
    {"truncate", "every file of a store ends at every length", run_truncate},
    {"hostile", "headers, index and names that nobody wrote in good faith, under right checksums", run_hostile},
    {"faults", "a fault at every call of the file system in turn", run_faults},
    {"limits", "a full tmpfs and a limit of the file size, as the system has them", run_limits},
    {"kills", "a process is killed at every kind of call, and at random moments", run_kills},
};

std::string next_of(int& at, int count, char** arguments) {
  if (at + 1 >= count) throw std::invalid_argument(std::string(arguments[at]) + " needs a value");
  return arguments[++at];
}

int list() {
  for (const Trial& trial : kTrials) std::cout << trial.name << "  " << trial.what << "\n";
  return 0;
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
  std::string json, directory;
  options.program = "/proc/self/exe";
  unsigned hang_seconds = 60;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--list") return list();
    if (word == "--count")
      options.count = std::stoull(next_of(i, count, arguments));
    else if (word == "--seed")
      options.seed = std::stoull(next_of(i, count, arguments));
    else if (word == "--dir")
      directory = next_of(i, count, arguments);
    else if (word == "--json")
      json = next_of(i, count, arguments);
    else if (word == "--without")
      options.without = next_of(i, count, arguments);
    else if (word == "--hang")
      hang_seconds = static_cast<unsigned>(std::stoul(next_of(i, count, arguments)));
    else if (word == "--short")
      options.short_form = true;
    else {
      for (const Trial& one : kTrials) {
        if (word == one.name) trial = &one;
      }
      if (trial == nullptr)
        throw std::invalid_argument("there is no trial and no option '" + word + "'; --list names the trials");
    }
  }
  if (trial == nullptr) throw std::invalid_argument("which trial? --list names them");
  options.directory = own_directory(directory);
  std::cout << trial->name << ", seed " << options.seed << std::endl;
  Report report;
  const bool good = guarded(*trial, options, report, hang_seconds);
  std::error_code left;
  std::filesystem::remove_all(options.directory, left);
  std::cout << report.text();
  if (!json.empty()) {
    std::ofstream out(json);
    out << report.json(trial->name, options.seed);
    if (!out.flush()) throw std::runtime_error(json + " cannot be written");
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ebb::trials

int main(int count, char** arguments) try {
  return ebb::trials::run(count, arguments);
} catch (const std::exception& error) {
  std::cerr << "ebb_trials: " << error.what() << "\n";
  return 2;
}
