// Exceptions on provisioning threads, mainly out of memory: no caller could catch them there.
#include <atomic>
#include <gtest/gtest.h>
#include <new>
#include <thread>

#include "cache/tier_memory.hpp"
#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::cache {
namespace {

constexpr std::size_t kPage = 4096, kSize = 64 * kPage;

/// A double of a GPU that throws at the `nth` registration and mapping, and at all that follow.
class ThrowingDevice final : public doubles::ForwardDevice {
 public:
  explicit ThrowingDevice(int nth) : ForwardDevice(make()), left_(nth) {}
  Result<void> pin(std::byte* memory, std::size_t bytes) override {
    if (--left_ <= 0) throw std::bad_alloc();
    return ForwardDevice::pin(memory, bytes);
  }
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    if (--left_ <= 0) throw std::bad_alloc();
    return ForwardDevice::map(range, at, bytes);
  }

 private:
  static std::shared_ptr<device::Device> make() {
    doubles::FakeDevice::Options options;
    options.discrete = true;
    return std::make_shared<doubles::FakeDevice>(options);
  }
  std::atomic<int> left_;
};

planner::ProvisionSpec all_in_pages() {
  planner::ProvisionSpec spec;
  spec.piece = spec.largest_piece = kPage;
  spec.lead = planner::kAllAhead;
  spec.pin_deadline = planner::kNever;
  return spec;
}

TEST(ProvisionedThrowing, a_touch_is_one_that_failed) {
  ThrowingDevice device(1 << 20);
  Watch watch;
  MemoryOptions options = watch.options();
  std::atomic<std::byte*> first = nullptr;
  options.touch = [&](std::byte* memory, std::size_t bytes) {
    if (first && memory >= first + 5 * kPage) throw std::bad_alloc();
    return os::populate(memory, bytes);
  };
  planner::ProvisionSpec spec = all_in_pages();
  spec.lead = 0;
  const auto memory = incremental_host_memory(device, kSize, std::move(options), spec).value();
  first = memory->data();
  memory->want(kSize);
  watch.until_trouble();
  watch.until([&] { return memory->ready() == 5 * kPage; });
  EXPECT_EQ(memory->limit(), 5 * kPage);
  EXPECT_NE(memory->report().trouble.find("bad_alloc"), std::string::npos) << memory->report().trouble;
}

TEST(ProvisionedThrowing, a_registration_is_one_that_failed) {
  ThrowingDevice device(4);
  Watch watch;
  const auto memory = incremental_host_memory(device, kSize, watch.options(), all_in_pages()).value();
  memory->want(kSize);
  watch.until_ready(*memory, kSize);
  watch.until_trouble();
  EXPECT_EQ(memory->report().pinned, 3 * kPage);
  EXPECT_EQ(memory->limit(), kSize) << "the rest is used unregistered";
}

TEST(ProvisionedThrowing, a_mapping_is_one_that_failed) {
  ThrowingDevice device(4);
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = kPage;
  const auto memory = mapped_device_memory(device, kSize, std::move(options)).value();
  watch.until_trouble();
  EXPECT_EQ(memory->ready(), 3 * std::max(kPage, device.map_granule()));
  EXPECT_EQ(memory->limit(), memory->ready());
}

TEST(ProvisionedThrowing, who_listens_to_troubles_may) {
  ThrowingDevice device(4);
  Watch watch;
  MemoryOptions options = watch.options();
  std::atomic<bool> thrown = false;
  options.trouble = [&](const std::string&) {
    thrown = true;
    throw std::bad_alloc();
  };
  std::atomic<int> touches = 0;
  options.touch = [&](std::byte* memory, std::size_t bytes) {
    while (++touches > 8 && !thrown) std::this_thread::yield();
    return os::populate(memory, bytes);
  };
  const auto memory = incremental_host_memory(device, kSize, std::move(options), all_in_pages()).value();
  memory->want(kSize);
  watch.until_ready(*memory, kSize);
  EXPECT_NE(memory->report().trouble, "");
}

// Provisioning ends there, ready memory stays, and the queue is left.
TEST(ProvisionedThrowing, anything_else_ends_the_provisioning) {
  struct Queue final : os::PinQueue {
    explicit Queue(std::atomic<int>& times) : left(times) {}
    bool wait(std::stop_token) override {
      if (++waits == 4) throw std::bad_alloc();
      return true;
    }
    void leave() noexcept override { ++left; }
    int waits = 0;
    std::atomic<int>& left;
  };
  ThrowingDevice device(1 << 20);
  Watch watch;
  std::atomic<int> left = 0;
  MemoryOptions options = watch.options();
  options.queue = std::make_unique<Queue>(left);
  const auto memory = incremental_host_memory(device, kSize, std::move(options), all_in_pages()).value();
  memory->want(kSize);
  watch.until_trouble();
  EXPECT_EQ(memory->ready(), 3 * kPage);
  EXPECT_EQ(memory->limit(), 3 * kPage);
  EXPECT_NE(memory->report().trouble.find("bad_alloc"), std::string::npos) << memory->report().trouble;
  memory->want(kSize);
  memory->produced(kPage);
  memory->stop();
  EXPECT_EQ(memory->ready(), 3 * kPage);
  EXPECT_EQ(left, 3);
}

}  // namespace
}  // namespace ebb::cache
