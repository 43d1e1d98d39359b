#pragma once
// Suspending a store when a signal asks for it.
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

#include "ebbtide/store.hpp"
#include "os/signal_wake.hpp"
#include "planner/ids.hpp"
#include "store/parts.hpp"

namespace ebb::store {

class Engine;

/// Waits for a signal, makes everything written so far durable, then writes the mark. The mark is a checkpoint without
/// bytes in a history of its own, and its version is the time: so it is stored, found again and dropped as every other
/// checkpoint is, at every durability and also in a node's pool, and the format of the files has nothing new.
///
/// Thread safety: every method may be called from any thread; stop() by one.
/// 1. From the signal's handler on until the drain has ended, a call of the program waits in refusal().
/// 2. The mark is written after everything else is durable. Where it cannot be made durable it is dropped again.
class Suspender {
 public:
  explicit Suspender(Engine& engine) : engine_(engine), process_(::getpid()) {}
  ~Suspender() { stop(); }

  Result<void> on(int signal, const SuspendOptions& options);
  /// Why a call of the program may not begin; none: it may. A failed suspension is reported once.
  std::optional<Error> refusal(const Interrupt& interrupted);
  /// Waits for a suspension that a signal has asked for. False: `interrupted`.
  bool settle(const Interrupt& interrupted);
  /// The time at which the mark was written, in ns since 1970; none: there is no mark.
  Result<std::optional<std::int64_t>> mark();
  Result<void> clear();
  void stop();

 private:
  struct Plan {
    bool wanted = false;
    std::string level;
    std::optional<Seconds> within;
  };

  void run();
  Result<void> suspend(const Plan& plan);
  bool stopping();
  Result<void> drop_marks(planner::Time until);
  Error not_open() const;
  Result<void> write_mark(const std::string& level, planner::Time until);
  bool under_way() const { return draining_ || (wake_ && wake_->pending() != 0); }
  bool await(std::unique_lock<std::mutex>& lock, const Interrupt& interrupted);

  Engine& engine_;
  const pid_t process_;            // a forked child is refused by the calls themselves
  std::atomic<bool> used_{false};  // on() was called
  std::mutex mutex_;
  std::condition_variable ended_;  // a drain
  // All below by mutex_. While thread_ runs wake_ is constant.
  std::unique_ptr<os::SignalWake> wake_;
  std::array<Plan, 65> plans_;  // by signal
  bool draining_ = false;
  bool suspended_ = false;
  bool stopping_ = false;
  int signal_ = 0;  // the last that came
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace ebb::store
