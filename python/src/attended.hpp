#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <nanobind/nanobind.h>
#include <optional>
#include <thread>
#include <utility>

namespace ebb::python {

namespace nb = nanobind;

/// Runs `work` on a separate thread while this one runs signal handlers and calls `tell` with the bytes read so far.
/// An exception of either ends the work first.
class Attended {
 public:
  explicit Attended(nb::object tell) : tell_(std::move(tell)) {}

  /// For the work: adds to the bytes; false: it is to end.
  std::function<bool(std::uint64_t)> progress() {
    return [this](std::uint64_t bytes) {
      bytes_.fetch_add(bytes, std::memory_order_relaxed);
      return !stop_.load(std::memory_order_relaxed);
    };
  }

  template <class Work>
  void run(Work work) {
    std::exception_ptr thrown;
    std::thread thread([&] {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    });
    std::optional<nb::python_error> raised;
    while (!wait()) {
      if (raised) continue;
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!tell_.is_none()) tell_(bytes_.load());
      } catch (nb::python_error& error) {
        raised.emplace(std::move(error));
        stop_ = true;
      }
    }
    thread.join();
    if (raised) throw nb::python_error(std::move(*raised));
    if (thrown) std::rethrow_exception(thrown);
    if (!tell_.is_none()) tell_(bytes_.load());
  }

 private:
  bool wait() {
    nb::gil_scoped_release unlocked;
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return over_; });
  }

  nb::object tell_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

}  // namespace ebb::python
