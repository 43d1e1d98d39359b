#pragma once
#include <condition_variable>
#include <mutex>

#include "device/device.hpp"

namespace ebb::runtime::testing_support {

/// Ordinary memory whose inline copies wait at a gate, so that a test can do things while a caller copies.
/// Thread safety: every method may be called from any thread.
class GateDevice final : public platform::Device {
 public:
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

  std::string_view name() const noexcept override { return "gate"; }
  bool host_memory() const noexcept override { return true; }
  Result<std::byte*> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void free(std::byte* memory, std::size_t bytes) noexcept override {
    if (may_go()) inner_->free(memory, bytes);
  }
  Result<std::byte*> reserve(std::size_t bytes) override { return inner_->reserve(bytes); }
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    return inner_->map(range, at, bytes);
  }
  std::size_t map_granule() const noexcept override { return inner_->map_granule(); }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override {
    if (may_go()) inner_->unreserve(range, bytes);
  }
  Result<void> pin(std::byte* memory, std::size_t bytes) override { return inner_->pin(memory, bytes); }
  void unpin(std::byte* memory, std::size_t bytes) noexcept override { inner_->unpin(memory, bytes); }
  Result<std::byte*> allocate_host(std::size_t bytes) override { return inner_->allocate_host(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { inner_->free_host(memory, bytes); }
  std::uint64_t free_bytes() noexcept override { return inner_->free_bytes(); }
  Result<void> digest(platform::StreamId stream, const void* memory, std::size_t bytes,
                      platform::Digest* parts) override {
    return inner_->digest(stream, memory, bytes, parts);
  }
  Result<void> zones(platform::StreamId stream, const platform::ZoneJob& job) override {
    return inner_->zones(stream, job);
  }
  bool capturing(platform::StreamId stream) noexcept override { return inner_->capturing(stream); }
  Result<platform::StreamId> create_stream() override { return inner_->create_stream(); }
  void destroy_stream(platform::StreamId stream) noexcept override { inner_->destroy_stream(stream); }
  Result<platform::EventId> create_event() override { return inner_->create_event(); }
  void destroy_event(platform::EventId event) noexcept override { inner_->destroy_event(event); }
  Result<void> copy(platform::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    if (stream == platform::kInlineStream) {
      std::unique_lock lock(mutex_);
      ++standing_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
      --standing_;
    }
    return inner_->copy(stream, to, from, bytes);
  }
  Result<void> record(platform::EventId event, platform::StreamId stream) override {
    return inner_->record(event, stream);
  }
  Result<void> stream_wait(platform::StreamId stream, platform::EventId event) override {
    return inner_->stream_wait(stream, event);
  }
  Result<void> synchronize() override { return inner_->synchronize(); }
  platform::EventState query(platform::EventId event) noexcept override { return inner_->query(event); }
  Result<void> wait(platform::EventId event) override { return inner_->wait(event); }
  void wait_any(std::span<const platform::EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    inner_->wait_any(events, at_most);
  }
  void interrupt() noexcept override { inner_->interrupt(); }
  void discard(void* memory, std::size_t bytes) noexcept override { inner_->discard(memory, bytes); }

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
  const std::unique_ptr<platform::Device> inner_ = platform::make_host_device();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, freed_ = false, freed_under_a_copy_ = false;
  std::size_t standing_ = 0;
};

}  // namespace ebb::runtime::testing_support
