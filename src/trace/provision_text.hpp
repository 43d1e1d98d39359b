#pragma once
// The provisioning of memory as text: each memory once, with what its provisioner was made from, then every event of it
// and the provisioner's output, always together. Lines of several memories, and of the planner, may come in any order;
// their times are those of one clock. NAME is the tier's, or ring:NODE.
//
//   memory NAME CAPACITY USED_WHEN TOUCHERS PIECE LARGEST_PIECE LEAD LONGEST_PIN COOLDOWN PIN_DEADLINE
//   p NAME NOW KIND OFFSET LENGTH TOOK     fields as src/planner/provisioner.hpp has them
//   o NAME READY LIMIT TICKET PIN_OFFSET PIN_LENGTH [OFFSET LENGTH]...     to be touched; no pin: a length of 0
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "planner/provisioner.hpp"

namespace ebb::trace {

/// The lines of all memories of a store, until they are taken into its event log.
///
/// Thread safety: every method may be called from any thread.
/// 1. Its mutex is a leaf: a caller may hold any other.
class ProvisionLog {
 public:
  /// What `provisioner` gave for an event. Of one memory in the order of its events, the first one included.
  void add(const std::string& name, const planner::Provisioner& provisioner, const planner::ProvisionEvent& event,
           const planner::ProvisionCommands& out);
  /// Appends the lines to `text` and forgets them.
  void take(std::string& text);

 private:
  std::mutex mutex_;
  std::string text_;             // by mutex_
  std::set<std::string> begun_;  // by mutex_
};

/// Replays what a ProvisionLog wrote. Trusts nothing in it.
class ProvisionReplay {
 public:
  /// Whether a line is of a memory or an event of one.
  static bool takes(std::string_view line) { return line.starts_with("memory ") || line.starts_with("p "); }
  /// Appends the output that the line leads to. False: it is not valid. Throws std::logic_error as a provisioner does.
  bool take(std::string_view line, std::string& given);

 private:
  std::map<std::string, planner::Provisioner, std::less<>> memories_;
};

}  // namespace ebb::trace
