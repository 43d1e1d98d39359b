#pragma once
// Options from the environment, with the environment as a value so that tests need not change their own.
#include <map>
#include <string>

#include "ebbtide/options.hpp"

namespace ebb::runtime {

using Environment = std::map<std::string, std::string, std::less<>>;

Environment process_environment();

/// Fills what `options` leaves out from `EBBTIDE_<FIELD>`; `EBBTIDE_DIR` is short for `EBBTIDE_DIRECTORY`, and
/// `EBBTIDE_LOG=info` sends the log to stderr, which otherwise gets its warnings alone, or with `off` nothing. Unknown
/// names that begin with `EBBTIDE_` and wrong values are refused.
Result<Options> with_environment(Options options, const Environment& environment);

}  // namespace ebb::runtime
