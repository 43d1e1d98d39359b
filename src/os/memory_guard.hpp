#pragma once
// Touching memory of the application that may be gone: a mapped file that was truncated, pages without access rights.
#include <csignal>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace ebb::os {

/// Runs `work(what)` on this thread. False: the system refused it memory (SIGSEGV, SIGBUS), and it ended in the middle.
/// It touches memory and does nothing else: no destructor of it runs then, and no lock of it is released. Handlers of
/// the two signals are installed at the first call, in front of the program's own, which get every other fault. A
/// thread that blocks these signals is not protected.
bool try_touch(void (*work)(void*), void* what) noexcept;

template <class Work>
bool try_touch(Work&& work) noexcept {
  using Plain = std::remove_reference_t<Work>;
  return try_touch([](void* what) { (*static_cast<Plain*>(what))(); },
                   const_cast<void*>(static_cast<const void*>(std::addressof(work))));
}

/// memcpy under try_touch(). `bytes` may be 0.
bool try_copy(void* to, const void* from, std::size_t bytes) noexcept;

/// Whether this is the handler of try_touch(), which asks MprotectWatch's table first.
bool is_guard(const struct sigaction& handler) noexcept;

}  // namespace ebb::os
