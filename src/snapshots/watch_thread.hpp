#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "os/write_watch.hpp"

namespace ebb::snapshots {

/// A watch of writes and its fault thread.
///
/// Thread safety: every method may be called from any thread but the fault thread, ask() from that one as well.
/// 1. `told` is called by the fault thread alone, in the order of the events; an Error is its last call: from then on
///    the watch has `failed`, faults get no answer, and its memory must be disarmed.
/// 2. What happened to watched memory before ask() was told before confirmed() reaches its ticket.
/// 3. Here nothing is allocated, and no lock is held that is held during an allocation.
class WatchThread {
 public:
  using Told = std::function<void(const Result<os::WatchEvent>&)>;
  /// `confirmed` is called by the fault thread when confirmed() has grown.
  WatchThread(std::unique_ptr<os::WriteWatch> watch, Told told, std::function<void()> confirmed);
  /// Forgets all memory, so writers go on.
  ~WatchThread();
  WatchThread(const WatchThread&) = delete;

  os::WriteWatch& watch() { return *watch_; }
  bool failed() const noexcept { return failed_.load(); }
  std::uint64_t ask() noexcept;
  std::uint64_t confirmed() const noexcept { return confirmed_.load(); }

 private:
  void run();

  const std::unique_ptr<os::WriteWatch> watch_;
  const Told told_;
  const std::function<void()> on_confirmed_;
  std::atomic<std::uint64_t> asked_{0}, confirmed_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  std::thread thread_;
};

}  // namespace ebb::snapshots
