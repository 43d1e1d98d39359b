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
#include "tests/doubles/forward_device.hpp"
#ifdef EBB_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace bench {

using ebb::doubles::ForwardDevice;

/// A device whose memory, at once, comes from the CUDA runtime's own allocators.
class RuntimeAllocations final : public ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
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
class ToldRegistrations final : public ForwardDevice {
 public:
  ToldRegistrations(std::shared_ptr<ebb::device::Device> below, Registrations& told)
      : ForwardDevice(std::move(below)), told_(told) {}
  ebb::Result<void> pin(std::byte* memory, std::size_t bytes) override {
    const auto begin = Registrations::Clock::now();
    auto pinned = ForwardDevice::pin(memory, bytes);
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
