#pragma once
// How a reader beside a writer notices that a store has changed, without reading its segments.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/files.hpp"

namespace ebb::storage {

/// The text of the file `lock` while a process writes: its holder, for messages, and a random number that changes
/// before each change is reported. File times would not do: they change before the data can be read.
std::string lock_text(const std::string& holder, std::uint64_t number);

/// Remembers the text of `lock` and the identity of `index`. An index exists only while no process writes, and each one
/// is a new file. If neither exists (a writer of a release without the number was killed), every check reports a
/// change.
///
/// Thread safety: used by one thread at a time. `files` must outlive it.
class ChangeMark {
 public:
  ChangeMark(os::Files& files, const std::filesystem::path& directory);

  /// Whether anything may have changed since the last call; takes three system calls, two of them for a status. True
  /// the first time, and if it cannot tell. What is read afterwards is at least as new as this.
  bool changed();
  /// The next answer is true, because the store could not be read completely.
  void forget() { last_.reset(); }

 private:
  std::optional<std::string> read();
  os::Files& files_;
  const std::filesystem::path index_, lock_path_;
  os::File lock_;  // open, so that its inode is not reused
  os::FileStatus opened_;
  std::optional<std::string> last_;
};

}  // namespace ebb::storage
