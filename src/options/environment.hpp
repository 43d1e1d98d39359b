#pragma once
// Options from the environment, with the environment as a value so that tests need not change their own.
#include <map>
#include <string>

#include "ebbtide/options.hpp"

namespace ebb::options {

using Environment = std::map<std::string, std::string, std::less<>>;

Environment process_environment();

/// Fills what `options` leaves out from `EBBTIDE_<FIELD>`; `EBBTIDE_DIR` is short for `EBBTIDE_DIRECTORY`.
/// `EBBTIDE_LOG=info` sends the log to stderr, `off` discards it; by default stderr gets its warnings alone. Unknown
/// names that begin with `EBBTIDE_` and wrong values are refused.
Result<Options> with_environment(Options options, const Environment& environment);

}  // namespace ebb::options
