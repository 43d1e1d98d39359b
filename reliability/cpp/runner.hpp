#pragma once
// Carries a script out on a store, and says what it knows.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "os/files.hpp"
#include "reliability/cpp/script.hpp"
#include "reliability/cpp/subject.hpp"

namespace ebb::trials {

struct Runner {
  const Script& script;
  std::shared_ptr<os::Files> files;
  SubjectOptions options;
  std::function<void(const Event&)> tell;
  /// A step failed, by name. Unset: it may not.
  std::function<void(const Step&, const Error&)> failed = {};
  /// What the store gave up is told too: where no more fails than one sync, it never comes back.
  bool tells_lost = false;
  /// Before each opening, with how many there were.
  std::function<void(std::size_t)> before_open = {};
  /// Before the last close.
  std::function<void(Subject*)> at_end = {};

  /// Where a step fails, those that it was for are left out. Throws std::runtime_error where none may fail.
  void run();
  /// For a store with retention: what it has dropped by itself is not there to be waited for.
  void allow_dropped();
};

/// A store that was closed becomes as if its process had been killed: no index, and room behind the last record. The
/// next opening reads all of it from the disk.
void make_unclosed(os::Files& files, const std::filesystem::path& directory);

}  // namespace ebb::trials
