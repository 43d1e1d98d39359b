#pragma once
// What the GPU benchmarks have in common: device and pinned memory, streams and events that free themselves, and bare
// copies to compare with.
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <stdexcept>
#include <string>

#include "benches/common.hpp"

namespace bench {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

struct FreeDevice {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
struct FreePinned {
  void operator()(std::byte* memory) const { cudaFreeHost(memory); }
};
using DeviceBuffer = std::unique_ptr<std::byte[], FreeDevice>;
using PinnedBuffer = std::unique_ptr<std::byte[], FreePinned>;

inline DeviceBuffer make_device_buffer(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  DeviceBuffer buffer(static_cast<std::byte*>(memory));
  check(cudaMemset(memory, 1, bytes), "cudaMemset");
  return buffer;
}

inline PinnedBuffer make_pinned_buffer(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  return PinnedBuffer(static_cast<std::byte*>(memory));
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(stream_); }
  void copy(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
  }
  void wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record(const Stream& stream) { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
  /// Both must have passed.
  double seconds_since(const Event& before) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, before.event_, event_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Makes the context and whatever the first copy of each kind makes, so that it is not counted as ours.
inline void warm_up() {
  check(cudaFree(nullptr), "make a CUDA context");
  const std::size_t bytes = 64 << 20;
  const DeviceBuffer one = make_device_buffer(bytes), two = make_device_buffer(bytes);
  const PinnedBuffer pinned = make_pinned_buffer(bytes);
  Stream stream;
  for (int i = 0; i < 4; ++i) {
    stream.copy(two.get(), one.get(), bytes);
    stream.copy(pinned.get(), one.get(), bytes);
    stream.copy(two.get(), pinned.get(), bytes);
  }
  stream.wait();
}

inline std::uint64_t free_device_bytes() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

}  // namespace bench
