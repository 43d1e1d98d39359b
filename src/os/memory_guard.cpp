#include "os/memory_guard.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/fault_handler.hpp"

namespace ebb::os {
namespace {

// A thread in guarded work. No thread_local: a handler must not be the first to touch one, which may allocate, and a
// module that is loaded later may find no room for those that never do.
struct GuardedThread {
  std::atomic<pthread_t> owner{};
  sigjmp_buf* back = nullptr;
};
constexpr std::size_t kPlaces = 1024;  // threads that copy at once; any more are not guarded
constinit std::array<GuardedThread, kPlaces> places{};

// Threads' handles are addresses in their stacks: the low bits say nothing.
GuardedThread& place_of(pthread_t thread, std::size_t tries) noexcept {
  return places[((static_cast<std::uint64_t>(thread) * 0x9E3779B97F4A7C15u >> 54) + tries) % kPlaces];
}

GuardedThread* claim(sigjmp_buf* back) noexcept {
  const pthread_t me = ::pthread_self();
  for (std::size_t tries = 0; tries < kPlaces; ++tries) {
    GuardedThread& place = place_of(me, tries);
    pthread_t none{};
    if (!place.owner.compare_exchange_strong(none, me, std::memory_order_acquire)) continue;
    place.back = back;
    return &place;
  }
  return nullptr;
}

GuardedThread* place_of_this_thread() noexcept {
  const pthread_t me = ::pthread_self();
  for (std::size_t tries = 0; tries < kPlaces; ++tries)
    if (GuardedThread& place = place_of(me, tries); place.owner.load(std::memory_order_relaxed) == me) return &place;
  return nullptr;
}

constexpr std::array kSignals{SIGSEGV, SIGBUS};
constinit std::atomic<bool> installed{false};
constinit std::mutex installing{};
std::array<struct sigaction, kSignals.size()> before{};  // the handlers that ours replaced

// Of an access by this thread. A handler in front of ours, such as Python's faulthandler, raises the signal anew.
bool is_fault(const siginfo_t& info) noexcept {
  return info.si_code > 0 || (info.si_code == SI_TKILL && info.si_pid == ::getpid());
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool answered = number == SIGSEGV && faults::answer(*info);
  if (GuardedThread* const place = answered || !is_fault(*info) ? nullptr : place_of_this_thread()) {
    ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    ::siglongjmp(*place->back, 1);
  }
  errno = error;
  if (!answered) faults::pass_on(before[number == SIGBUS], number, info, context);
}

void install() noexcept {
  const std::lock_guard lock(installing);
  if (installed) return;
  struct sigaction ours{};
  ours.sa_sigaction = on_signal;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);  // known before the first fault
    ::sigaction(kSignals[i], &ours, nullptr);
  }
  installed = true;
}

}  // namespace

bool try_touch(void (*work)(void*), void* what) noexcept {
  if (!installed.load(std::memory_order_acquire)) install();
  sigjmp_buf back;
  GuardedThread* const place = claim(&back);
  const bool went = sigsetjmp(back, 0) == 0;  // else the handler has set the signal mask
  if (went) work(what);
  if (place != nullptr) place->owner.store({}, std::memory_order_release);
  return went;
}

bool is_guard(const struct sigaction& handler) noexcept {
  return (handler.sa_flags & SA_SIGINFO) && handler.sa_sigaction == on_signal;
}

bool try_copy(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  return try_touch([&] { std::memcpy(to, from, bytes); });
}

}  // namespace ebb::os
