#pragma once
// What the tests of a GPU share.
#include <algorithm>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "device/cuda.hpp"
#include "os/pages.hpp"

namespace ebb::device {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGiB = std::size_t{1} << 30;
// Memory that the driver or another process may take between two queries of free memory.
inline constexpr std::uint64_t kSlack = 64 * kMiB;

inline void check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_absent_reason().empty()) GTEST_SKIP() << "no CUDA device: " << cuda_absent_reason();
    device_ = make_cuda_device(0).value();
    stream_ = device_->create_stream().value();
    event_ = device_->create_event().value();
  }
  void TearDown() override {
    if (!device_) return;
    device_->destroy_event(event_);
    device_->destroy_stream(stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a failure was left behind for the program to find";
  }

  Result<void> copy_and_wait(StreamId on, void* to, const void* from, std::size_t bytes) {
    if (Result<void> copied = device_->copy(on, to, from, bytes); !copied) return copied;
    if (Result<void> recorded = device_->record(event_, on); !recorded) return recorded;
    return device_->wait(event_);
  }
  std::vector<std::byte> download(const std::byte* from, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    copy_and_wait(stream_, all.data(), from, bytes).value();
    return all;
  }
  bool holds(const std::byte* from, std::size_t bytes, int value) {
    const std::vector<std::byte> all = download(from, bytes);
    return std::ranges::all_of(all, [&](std::byte b) { return b == std::byte(value); });
  }

  std::shared_ptr<Device> device_;
  StreamId stream_ = 0;
  EventId event_ = 0;
};

}  // namespace ebb::device
