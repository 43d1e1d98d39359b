// For programs that run with an older C library than they were built with: libstdc++'s std::random_device, linked
// statically, calls arc4random, which glibc has since 2.36.
#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t drawn = 0;
  while (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
  }
  return drawn;
}
