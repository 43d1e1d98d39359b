#pragma once
// Every place where a thread of the runtime stands still, by name. In production EBB_WAIT is just its statement. A
// build with -DEBB_MUTATE_WAIT="\"name\"" leaves that one wait out: tests/runtime/mutation_waits proves that a test
// turns red for each (the table of names and tests is in tests/runtime/wait_points_test.cpp).
#include <string_view>

#ifdef EBB_MUTATE_WAIT
#define EBB_WAIT(name, ...)                                                \
  do {                                                                     \
    if constexpr (std::string_view(#name) != EBB_MUTATE_WAIT) __VA_ARGS__; \
  } while (false)
#else
#define EBB_WAIT(name, ...) __VA_ARGS__
#endif
