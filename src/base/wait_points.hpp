#pragma once
// Every place where a thread of the store waits, by name. EBB_WAIT expands to its statement alone. The test program
// store_waits compiles these files with EBB_WAIT_POINTS and can leave one wait out by name, to prove that a test fails
// without it (tests/store/mutation_waits; wait_points_test.cpp there lists names and tests).

#ifdef EBB_WAIT_POINTS
#include <string_view>

namespace ebb::base {
/// Defined by the test program: whether this wait is enabled.
bool wait_in_place(std::string_view name) noexcept;
}  // namespace ebb::base

#define EBB_WAIT(name, ...)                             \
  do {                                                  \
    if (::ebb::base::wait_in_place(#name)) __VA_ARGS__; \
  } while (false)
#else
#define EBB_WAIT(name, ...) __VA_ARGS__
#endif
