#include "os/signal_wake.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <semaphore.h>
#include <string>
#include <unistd.h>

namespace ebb::os {
namespace {

constexpr int kSignals = 64;

constexpr std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

struct Slot {
  bool taken = false;  // by the mutex
  std::atomic<std::uint64_t> wanted{0}, pending{0};
  sem_t woken{};
};

struct Handlers {
  std::array<Slot, SignalWake::kSlots> slots;
  std::array<struct sigaction, kSignals + 1> before{};
  std::atomic<pid_t> process{0};
  std::mutex mutex;  // of those who add and remove; the handler does not take it

  Handlers() {
    for (Slot& slot : slots) ::sem_init(&slot.woken, 0, 0);
  }
};

Handlers& handlers() {
  static Handlers* const all = new Handlers;  // a signal may come while the process ends
  return *all;
}
Handlers* seen_by_handler = nullptr;  // set before the first handler is installed

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

void call_before(int signal, siginfo_t* info, void* context, bool ours) {
  const struct sigaction& before = seen_by_handler->before[static_cast<std::size_t>(signal)];
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_IGN) return;
  if (before.sa_handler != SIG_DFL) return before.sa_handler(signal);
  if (ours) return;
  ::signal(signal, SIG_DFL);  // a forked child: what the signal does by itself, once this handler has returned
  ::raise(signal);
}

// Signals that this thread is handling. A handler that was installed after ours may call ours: that is no new signal.
thread_local volatile std::uint64_t handling = 0;

void on_signal(int signal, siginfo_t* info, void* context) {
  if ((handling & bit(signal)) != 0) return;
  handling = handling | bit(signal);
  const int error = errno;
  const bool ours = seen_by_handler->process.load() == ::getpid();
  if (ours) {
    for (Slot& slot : seen_by_handler->slots) {
      if ((slot.wanted.load() & bit(signal)) == 0) continue;
      slot.pending.fetch_or(bit(signal));
      ::sem_post(&slot.woken);
    }
  }
  call_before(signal, info, context, ours);
  handling = handling & ~bit(signal);
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

// With the mutex held. Calls that a signal interrupts go on, unless the handler that was there wanted otherwise.
int install(Handlers& all, int signal) {
  struct sigaction now{};
  if (::sigaction(signal, nullptr, &now) != 0) return errno;
  if (is_ours(now)) return 0;
  all.before[static_cast<std::size_t>(signal)] = now;
  const bool handled = (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
  struct sigaction mine{};
  mine.sa_sigaction = on_signal;
  mine.sa_mask = now.sa_mask;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK | (handled ? now.sa_flags & (SA_RESTART | SA_NODEFER) : SA_RESTART);
  return ::sigaction(signal, &mine, nullptr) == 0 ? 0 : errno;
}

void remove(Handlers& all, int signal) {
  for (const Slot& slot : all.slots)
    if ((slot.wanted.load() & bit(signal)) != 0) return;
  struct sigaction now{};
  if (::sigaction(signal, nullptr, &now) != 0 || !is_ours(now)) return;
  ::sigaction(signal, &all.before[static_cast<std::size_t>(signal)], nullptr);
}

}  // namespace

bool is_a_request(int signal) noexcept {
  if (signal < 1 || signal > kSignals || (signal > 31 && signal < SIGRTMIN)) return false;
  for (const int other : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    if (signal == other) return false;
  return true;
}

std::string name_of_signal(int signal) {
  const char* const name = signal > 0 && signal < NSIG ? ::sigabbrev_np(signal) : nullptr;
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

SignalWake::SignalWake() : slot_(-1) {
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  if (all.process.exchange(::getpid()) != ::getpid()) {  // the first, or a forked child's first: nothing is its own
    for (Slot& slot : all.slots) slot.taken = false, slot.wanted = 0, slot.pending = 0;
    seen_by_handler = &all;
  }
  for (int i = 0; i < kSlots && slot_ < 0; ++i)
    if (!all.slots[static_cast<std::size_t>(i)].taken) slot_ = i;
  if (slot_ < 0) return;
  Slot& slot = all.slots[static_cast<std::size_t>(slot_)];
  slot.taken = true;
  slot.pending = 0;
}

SignalWake::~SignalWake() {
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  if (slot_ < 0 || all.process.load() != ::getpid()) return;
  Slot& slot = all.slots[static_cast<std::size_t>(slot_)];
  for (std::uint64_t left = slot.wanted.exchange(0); left != 0; left &= left - 1)
    remove(all, std::countr_zero(left) + 1);
  slot.taken = false;
}

SysResult SignalWake::add(int signal) {
  if (!is_a_request(signal)) return SysResult::failed(EINVAL);
  if (slot_ < 0) return SysResult::failed(EMFILE);
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  if (const int error = install(all, signal); error != 0) return SysResult::failed(error);
  all.slots[static_cast<std::size_t>(slot_)].wanted.fetch_or(bit(signal));
  return SysResult::of(0);
}

void SignalWake::sleep() {
  if (slot_ >= 0) static_cast<void>(::sem_wait(&handlers().slots[static_cast<std::size_t>(slot_)].woken));
}

void SignalWake::wake() {
  if (slot_ >= 0) static_cast<void>(::sem_post(&handlers().slots[static_cast<std::size_t>(slot_)].woken));
}

std::uint64_t SignalWake::pending() const noexcept {
  return slot_ < 0 ? 0 : handlers().slots[static_cast<std::size_t>(slot_)].pending.load();
}

std::uint64_t SignalWake::take() noexcept {
  return slot_ < 0 ? 0 : handlers().slots[static_cast<std::size_t>(slot_)].pending.exchange(0);
}

}  // namespace ebb::os
