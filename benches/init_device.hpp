#pragma once
// Devices that stand before the store's own: what a program that makes its own caches would do, cudaHostAlloc and
// cudaMalloc, all of it at once; and one that tells of registrations. And the GPU's own clock.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#ifdef EBB_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace bench {

/// All that it is asked is asked of the device below.
class DeviceBefore : public ebb::device::Device {
 public:
  explicit DeviceBefore(std::shared_ptr<ebb::device::Device> below) : below_(std::move(below)) {}
  ebb::Result<std::byte*> allocate(std::size_t bytes) override { return below_->allocate(bytes); }
  void free(std::byte* memory, std::size_t bytes) noexcept override { below_->free(memory, bytes); }
  ebb::Result<std::byte*> allocate_host(std::size_t bytes) override { return below_->allocate_host(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { below_->free_host(memory, bytes); }

  std::string_view name() const noexcept override { return below_->name(); }
  bool host_memory() const noexcept override { return below_->host_memory(); }
  std::optional<int> gpu() const noexcept override { return below_->gpu(); }
  std::uint64_t free_bytes() noexcept override { return below_->free_bytes(); }
  ebb::Result<std::byte*> reserve(std::size_t bytes) override { return below_->reserve(bytes); }
  ebb::Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    return below_->map(range, at, bytes);
  }
  std::size_t map_granule() const noexcept override { return below_->map_granule(); }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override { below_->unreserve(range, bytes); }
  ebb::Result<void> pin(std::byte* memory, std::size_t bytes) override { return below_->pin(memory, bytes); }
  void unpin(std::byte* memory, std::size_t bytes) noexcept override { below_->unpin(memory, bytes); }
  ebb::Result<ebb::device::StreamId> create_stream() override { return below_->create_stream(); }
  void destroy_stream(ebb::device::StreamId stream) noexcept override { below_->destroy_stream(stream); }
  ebb::Result<ebb::device::EventId> create_event() override { return below_->create_event(); }
  void destroy_event(ebb::device::EventId event) noexcept override { below_->destroy_event(event); }
  ebb::Result<void> copy(ebb::device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    return below_->copy(stream, to, from, bytes);
  }
  ebb::Result<void> digest(ebb::device::StreamId stream, const void* memory, std::size_t bytes,
                           ebb::device::Digest* parts) override {
    return below_->digest(stream, memory, bytes, parts);
  }
  ebb::Result<void> zones(ebb::device::StreamId stream, const ebb::device::ZoneJob& job) override {
    return below_->zones(stream, job);
  }
  bool capturing(ebb::device::StreamId stream) noexcept override { return below_->capturing(stream); }
  bool foreign(ebb::device::StreamId stream) noexcept override { return below_->foreign(stream); }
  ebb::Result<void> record(ebb::device::EventId event, ebb::device::StreamId stream) override {
    return below_->record(event, stream);
  }
  ebb::Result<void> stream_wait(ebb::device::StreamId stream, ebb::device::EventId event) override {
    return below_->stream_wait(stream, event);
  }
  ebb::Result<void> synchronize() override { return below_->synchronize(); }
  ebb::device::EventState query(ebb::device::EventId event) noexcept override { return below_->query(event); }
  ebb::Result<void> wait(ebb::device::EventId event) override { return below_->wait(event); }
  void wait_any(std::span<const ebb::device::EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    below_->wait_any(events, at_most);
  }
  void interrupt() noexcept override { below_->interrupt(); }
  void discard(void* memory, std::size_t bytes) noexcept override { below_->discard(memory, bytes); }

 private:
  std::shared_ptr<ebb::device::Device> below_;
};

/// A device whose memory, at once, comes from the CUDA runtime's own allocators.
class RuntimeAllocations final : public DeviceBefore {
 public:
  using DeviceBefore::DeviceBefore;
  static constexpr bool there() {
#ifdef EBB_HAVE_CUDA
    return true;
#else
    return false;
#endif
  }

#ifdef EBB_HAVE_CUDA
  ebb::Result<std::byte*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    return given(error, memory, "cudaMalloc");
  }
  void free(std::byte* memory, std::size_t) noexcept override { cudaFree(memory); }
  ebb::Result<std::byte*> allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    return given(error, memory, "cudaHostAlloc");
  }
  void free_host(std::byte* memory, std::size_t) noexcept override { cudaFreeHost(memory); }

 private:
  static ebb::Result<std::byte*> given(cudaError_t error, void* memory, const char* what) {
    if (error == cudaSuccess) return static_cast<std::byte*>(memory);
    return ebb::Error{ebb::Errc::out_of_memory, std::string(what) + ": " + cudaGetErrorString(error)};
  }
#endif
};

/// When memory was registered, and how long that took.
class Registrations {
 public:
  using Clock = std::chrono::steady_clock;
  struct One {
    Clock::time_point begin, end;
  };
  void add(One one) {
    std::lock_guard lock(mutex_);
    all_.push_back(one);
  }
  std::vector<One> all() const {
    std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<One> all_;
};

/// A device that tells of each registration.
class ToldRegistrations final : public DeviceBefore {
 public:
  ToldRegistrations(std::shared_ptr<ebb::device::Device> below, Registrations& told)
      : DeviceBefore(std::move(below)), told_(told) {}
  ebb::Result<void> pin(std::byte* memory, std::size_t bytes) override {
    const auto begin = Registrations::Clock::now();
    auto pinned = DeviceBefore::pin(memory, bytes);
    told_.add({begin, Registrations::Clock::now()});
    return pinned;
  }

 private:
  Registrations& told_;
};

/// What passes between two places of a stream by the GPU's own clock.
class DeviceClock {
#ifdef EBB_HAVE_CUDA
 public:
  DeviceClock() {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void begin(ebb::device::StreamId stream) { check(cudaEventRecord(begin_, reinterpret_cast<cudaStream_t>(stream))); }
  void end(ebb::device::StreamId stream) { check(cudaEventRecord(end_, reinterpret_cast<cudaStream_t>(stream))); }
  /// Whether the end has passed.
  bool over() const {
    const cudaError_t state = cudaEventQuery(end_);
    if (state != cudaErrorNotReady) check(state);
    return state == cudaSuccess;
  }
  double seconds() const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  static void check(cudaError_t error) {
    if (error != cudaSuccess) throw std::runtime_error(std::string("the GPU's clock: ") + cudaGetErrorString(error));
  }
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
#else
 public:
  void begin(ebb::device::StreamId) {}
  void end(ebb::device::StreamId) {}
  bool over() const { return true; }
  double seconds() const { return 0; }
#endif
};

}  // namespace bench
