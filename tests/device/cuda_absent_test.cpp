// Without a GPU everything about GPUs still answers, and says why there is none.
#include <gtest/gtest.h>

#include "device/cuda.hpp"

namespace ebb::device {
namespace {

TEST(CudaAbsent, is_said_by_name) {
  if (cuda_absent_reason().empty()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_TRUE(find_cuda_devices().empty());
  EXPECT_TRUE(find_cuda_devices(true).empty());
  EXPECT_FALSE(current_cuda_device());
  int here = 0;
  EXPECT_FALSE(device_of_pointer(&here));
  EXPECT_FALSE(device_of_pointer(nullptr));
  const Result<std::shared_ptr<Device>> device = make_cuda_device(0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Errc::unsupported);
  EXPECT_NE(device.error().message.find("cuda:0"), std::string::npos);
  EXPECT_NE(device.error().message.find(cuda_absent_reason()), std::string::npos);
}

TEST(CudaAbsent, ordinals_that_no_gpu_has_are_refused) {
  for (const int ordinal : {-1, 1000}) {
    const Result<std::shared_ptr<Device>> device = make_cuda_device(ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, Errc::unsupported);
  }
}

}  // namespace
}  // namespace ebb::device
