#pragma once
// EBB_LONG in the environment, as `make test-all` has it: tests that have a long form take it.
#include <cstdlib>

namespace ebb {

inline bool long_form() { return std::getenv("EBB_LONG") != nullptr; }

}  // namespace ebb
