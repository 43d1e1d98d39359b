#include "os/processors.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <thread>

namespace ebb::os {
namespace {

TEST(Processors, are_those_that_a_process_is_bound_to) {
  std::thread([] {  // a binding is a thread's, and those that it starts have it too
    cpu_set_t all, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_EQ(usable_processors(), static_cast<unsigned>(CPU_COUNT(&all)));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_processors(), 1u);
    std::thread([] { EXPECT_EQ(usable_processors(), 1u); }).join();
  })
      .join();
}

}  // namespace
}  // namespace ebb::os
