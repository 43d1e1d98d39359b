#include "os/processors.hpp"

#include <algorithm>
#include <sched.h>
#include <thread>

namespace ebb::os {

unsigned usable_processors() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The kernel refuses a set smaller than the machine's processors (more than 1024).
  const int bound = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  return bound > 0 ? static_cast<unsigned>(bound) : std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace ebb::os
