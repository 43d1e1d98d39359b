#pragma once
// What tells who reads a store beside a writer that there is something new, without a look at its segments.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "os/files.hpp"

namespace ebb::storage {

/// What the file `lock` says while a process writes: its holder, for messages, and a random number, another one each
/// time before a change is reported. Times would not do: a file has its new time before what is written can be read.
std::string lock_text(const std::string& holder, std::uint64_t number);

/// Remembers the text of `lock` and which file `index` is. An index is there only while nobody writes, and each is a
/// new file. Where neither is there (the writer is of a release that writes no number, and was killed) nothing can be
/// told.
///
/// Thread safety: used by one thread at a time. `files` must outlive it.
class ChangeMark {
 public:
  ChangeMark(platform::Files& files, const std::filesystem::path& directory);

  /// Whether anything may have changed since it was asked last: three calls, of which two ask for a status. True the
  /// first time, and where nothing can be told. What is read afterwards is at least as new as this.
  bool changed();
  /// The next answer is true: not all of it could be read.
  void forget() { last_.reset(); }

 private:
  std::optional<std::string> read();
  platform::Files& files_;
  const std::filesystem::path index_, lock_path_;
  platform::File lock_;  // open, so that its inode is given to no other file
  platform::FileStatus opened_;
  std::optional<std::string> last_;
};

}  // namespace ebb::storage
