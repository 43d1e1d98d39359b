#pragma once
#include <condition_variable>
#include <mutex>

#include "tests/doubles/forward_device.hpp"

namespace ebb::store::testing_support {

/// Ordinary memory whose inline copies wait at a gate, so that a test can do things while a caller copies.
/// Thread safety: every method may be called from any thread.
class GateDevice final : public doubles::ForwardDevice {
 public:
  GateDevice() : doubles::ForwardDevice(device::make_host_device()) {}
  void shut() { set(false); }
  void open() { set(true); }
  void await_standing(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return standing_ >= n; });
  }
  /// Whether memory was freed while a copy waited at the gate.
  bool freed_under_a_copy() const {
    std::lock_guard lock(mutex_);
    return freed_under_a_copy_;
  }
  bool freed() const {
    std::lock_guard lock(mutex_);
    return freed_;
  }

  void free(std::byte* memory, std::size_t bytes) noexcept override {
    if (may_go()) doubles::ForwardDevice::free(memory, bytes);
  }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override {
    if (may_go()) doubles::ForwardDevice::unreserve(range, bytes);
  }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    if (stream == device::kInlineStream) {
      std::unique_lock lock(mutex_);
      ++standing_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
      --standing_;
    }
    return doubles::ForwardDevice::copy(stream, to, from, bytes);
  }

 private:
  // False: it leaks, rather than being pulled from under a copy; the test is to say so, not to crash.
  bool may_go() {
    std::lock_guard lock(mutex_);
    freed_ = true;
    if (standing_ > 0) freed_under_a_copy_ = true;
    return standing_ == 0;
  }
  void set(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, freed_ = false, freed_under_a_copy_ = false;
  std::size_t standing_ = 0;
};

}  // namespace ebb::store::testing_support
