#include <algorithm>
#include <array>
#include <iostream>

#include "reliability/cpp/trial.hpp"

namespace ebb::trials {
namespace {

// Names and errors may be any bytes.
std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  static constexpr std::array<std::string_view, kOutcomes> kNames{"EXACT",        "OLDER_EXACT", "CLEAR_ERROR",
                                                                  "SILENT_WRONG", "CRASH",       "HANG"};
  return kNames[static_cast<std::size_t>(outcome)];
}

void Report::begin(const std::string& what) {
  current_ = what;
  std::cout << "case " << in_one_line(what) << std::endl;
}

void Report::count(Outcome outcome, std::uint64_t cases) {
  std::cout << "count " << cases << " " << name_of(outcome) << "\n";
}

void Report::count_by(const std::string& name, std::uint64_t cases) {
  std::cout << "by " << cases << " " << in_one_line(name) << "\n";
}

void Report::violation(const std::string& what) {
  ++violations_;
  std::cout << "violation " << in_one_line(what) << "\n";
}

void Report::say(const std::string& what) { std::cout << "say " << in_one_line(what) << std::endl; }

void Report::done() { std::cout << "done" << std::endl; }

}  // namespace ebb::trials
