#pragma once
// Signals that wake a thread, and nothing else.
#include <cstdint>

#include "os/sys_result.hpp"

namespace ebb::os {

/// Whether a program may take `signal` as a request: it exists, can be caught, and is no sign of a broken program.
bool is_a_request(int signal) noexcept;
/// "SIGTERM", or "signal 40".
std::string name_of_signal(int signal);

/// Wakes one thread when one of some signals reaches the process. The handler that was there before is called too. A
/// forked child is not woken: there the signal does what it did before.
///
/// A signal handler has no argument of its own, so what it needs is static: slots that are never freed, one for each
/// object of this class, and the handlers that were there before. The handler allocates nothing and takes no lock.
///
/// Thread safety: every method may be called from any thread; sleep() by one at a time.
class SignalWake {
 public:
  SignalWake();  ///< takes a slot, if there is one
  SignalWake(const SignalWake&) = delete;
  ~SignalWake();  ///< puts the handlers back, unless another one has taken their place

  /// From now on `signal` wakes the thread. Errors: EINVAL (not a request), EMFILE (no slot: kSlots objects exist).
  SysResult add(int signal);
  /// Waits for a signal, or for wake(); may return without either.
  void sleep();
  void wake();
  /// What came and was not taken: bit n - 1 is signal n.
  std::uint64_t pending() const noexcept;
  std::uint64_t take() noexcept;

  static constexpr int kSlots = 16;

 private:
  int slot_;
};

}  // namespace ebb::os
