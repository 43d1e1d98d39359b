#pragma once
// For programs of one file: memory is refused in them when they say so.
#include <atomic>
#include <cstdlib>
#include <new>

namespace ebb::test {

/// All aligned memory, which transfers of files need, on every thread.
inline std::atomic<bool> refuse_aligned{false};
/// The n-th allocation of this thread from now on, and no other; 0: none.
inline thread_local int refuse_nth = 0;

inline void refuse_if_asked() {
  if (refuse_nth > 0 && --refuse_nth == 0) throw std::bad_alloc();
}

}  // namespace ebb::test

// Not inlined: the compiler would take their malloc and free for each other's opposites.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ebb::test::refuse_if_asked();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// As well, or a sanitizer's own would give what the others below do not take back.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ebb::test::refuse_if_asked();
  void* memory = nullptr;
  const bool refused = ebb::test::refuse_aligned;
  if (refused || ::posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) != 0) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  void* memory = nullptr;
  return ::posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) == 0 ? memory : nullptr;
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
