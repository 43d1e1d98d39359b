#pragma once
// One captured run: the region, the writer, the program, and what is said at the end.
#include <cstdint>
#include <string>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb::capture {

struct RunOptions {
  std::string directory;
  std::string library;  // the one that is preloaded
  std::string self;     // this program, which is the writer too
  std::uint64_t pool = std::uint64_t{1} << 30;
  bool defer = false;
  std::vector<std::string> program;
};

struct RunEnd {
  int status = 0;                     // the program's, 128 + n after signal n, or 127: it was not found
  std::vector<std::string> failures;  // files that are not whole
  std::vector<std::string> notes;     // on earlier runs
  std::string closing;                // line
};

/// Returns when the program has ended and every file is written. Errors: invalid_argument, not_permitted, no_space,
/// io_error, out_of_memory.
Result<RunEnd> run_captured(const RunOptions& options);

/// The writer of a run whose region has this name in the user's directory of shared memory. An exit status.
int serve_captured(const std::string& name);

}  // namespace ebb::capture
