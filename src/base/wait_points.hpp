#pragma once
// Every place where a thread of the runtime stands still, by name. EBB_WAIT is just its statement. The test program
// store_waits compiles these files with EBB_WAIT_POINTS and may leave one wait out by its name, to prove that a test
// turns red without it (tests/store/mutation_waits; the table of names and tests is in wait_points_test.cpp there).

#ifdef EBB_WAIT_POINTS
#include <string_view>

namespace ebb::runtime {
/// Defined by the test program: whether this wait is in place.
bool wait_in_place(std::string_view name) noexcept;
}  // namespace ebb::runtime

#define EBB_WAIT(name, ...)                                \
  do {                                                     \
    if (::ebb::runtime::wait_in_place(#name)) __VA_ARGS__; \
  } while (false)
#else
#define EBB_WAIT(name, ...) __VA_ARGS__
#endif
