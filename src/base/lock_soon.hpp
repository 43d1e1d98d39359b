#pragma once
#include <mutex>

namespace ebb::base {

/// Locks a mutex whose holders keep it for a few microseconds: tries for about as long before it sleeps. Putting a
/// thread to sleep and waking it costs several times what the holder still has to do.
inline std::unique_lock<std::mutex> lock_soon(std::mutex& mutex) {
  constexpr int kTries = 32, kPauses = 4;  // some 5 us
  for (int tried = 0; !mutex.try_lock(); ++tried) {
    if (tried == kTries) return std::unique_lock(mutex);
    for (int pause = 0; pause < kPauses; ++pause) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }
  return {mutex, std::adopt_lock};
}

}  // namespace ebb::base
