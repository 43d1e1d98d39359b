// For programs that are to run where the C library is older than the one they are built with: what a statically linked
// libstdc++ asks of that one alone (std::random_device, glibc 2.36).
#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t drawn = 0;
  while (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
  }
  return drawn;
}
