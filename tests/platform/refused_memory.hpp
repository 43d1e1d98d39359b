#pragma once
// For programs of one file: aligned memory, which transfers of files need, is refused in them when they say so.
#include <atomic>
#include <cstdlib>
#include <new>

namespace ebb::test {

inline std::atomic<bool> refuse_aligned{false};

}  // namespace ebb::test

// Not inlined: the compiler would take their malloc and free for each other's opposites.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  if (ebb::test::refuse_aligned || ::posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) != 0) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
