// What is thrown on an arena's threads, for want of memory above all: nobody could catch it there.
#include <atomic>
#include <gtest/gtest.h>
#include <new>

#include "cache/tier_memory.hpp"
#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::memory {
namespace {

constexpr std::size_t kPage = 4096, kSize = 64 * kPage;

/// A double of a GPU that throws at the `nth` registration and mapping, and at all that follow.
class ThrowingDevice final : public runtime::testing_support::ForwardDevice {
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
  static std::shared_ptr<platform::Device> make() {
    platform::testing::FakeDevice::Options options;
    options.discrete = true;
    return std::make_shared<platform::testing::FakeDevice>(options);
  }
  std::atomic<int> left_;
};

policy::ProvisionSpec all_in_pages() {
  policy::ProvisionSpec spec;
  spec.granule = spec.touch_piece = spec.first_piece = spec.largest_piece = kPage;
  spec.extent = policy::Extent::all;
  spec.pin_deadline = policy::kNever;
  return spec;
}

TEST(ArenaThrowing, a_touch_is_one_that_failed) {
  ThrowingDevice device(1 << 20);
  Watch watch;
  MemoryOptions options = watch.options();
  std::atomic<std::byte*> first = nullptr;
  options.touch = [&](std::byte* memory, std::size_t bytes) {
    if (first && memory >= first + 5 * kPage) throw std::bad_alloc();
    return platform::populate(memory, bytes);
  };
  policy::ProvisionSpec spec = all_in_pages();
  spec.extent = policy::Extent::needed;
  spec.least_lead = spec.most_lead = 0;
  const auto arena = TierMemory::growing(device, kSize, "test", spec, std::move(options)).value();
  first = arena->data();
  arena->want(kSize);
  watch.until_trouble();
  watch.until([&] { return arena->ready() == 5 * kPage; });
  EXPECT_EQ(arena->limit(), 5 * kPage);
  EXPECT_NE(arena->report().trouble.find("bad_alloc"), std::string::npos) << arena->report().trouble;
}

TEST(ArenaThrowing, a_registration_is_one_that_failed) {
  ThrowingDevice device(4);
  Watch watch;
  const auto arena = TierMemory::growing(device, kSize, "test", all_in_pages(), watch.options()).value();
  arena->want(kSize);
  watch.until_ready(*arena, kSize);
  watch.until_trouble();
  EXPECT_EQ(arena->report().pinned, 3 * kPage);
  EXPECT_EQ(arena->limit(), kSize) << "the rest is used unregistered";
}

TEST(ArenaThrowing, a_mapping_is_one_that_failed) {
  ThrowingDevice device(4);
  Watch watch;
  MemoryOptions options = watch.options();
  options.map_piece = kPage;
  const auto arena = TierMemory::on_device(device, kSize, DeviceStrategy::mapped, std::move(options)).value();
  watch.until_trouble();
  EXPECT_EQ(arena->ready(), 3 * std::max(kPage, device.map_granule()));
  EXPECT_EQ(arena->limit(), arena->ready());
}

TEST(ArenaThrowing, who_listens_to_troubles_may) {
  ThrowingDevice device(4);
  Watch watch;
  MemoryOptions options = watch.options();
  options.trouble = [](const std::string&) { throw std::bad_alloc(); };
  const auto arena = TierMemory::growing(device, kSize, "test", all_in_pages(), std::move(options)).value();
  arena->want(kSize);
  watch.until_ready(*arena, kSize);
  EXPECT_NE(arena->report().trouble, "");
}

// Growing ends there, what is ready stays, and the turn is not kept.
TEST(ArenaThrowing, anything_else_ends_the_growing) {
  struct Turn final : PinTurn {
    explicit Turn(std::atomic<int>& given) : given_back(given) {}
    bool take(std::stop_token) override {
      if (++takes == 4) throw std::bad_alloc();
      return true;
    }
    void give_back() noexcept override { ++given_back; }
    int takes = 0;
    std::atomic<int>& given_back;
  };
  ThrowingDevice device(1 << 20);
  Watch watch;
  std::atomic<int> given_back = 0;
  MemoryOptions options = watch.options();
  options.turn = std::make_unique<Turn>(given_back);
  const auto arena = TierMemory::growing(device, kSize, "test", all_in_pages(), std::move(options)).value();
  arena->want(kSize);
  watch.until_trouble();
  EXPECT_EQ(arena->ready(), 3 * kPage);
  EXPECT_EQ(arena->limit(), 3 * kPage);
  EXPECT_NE(arena->report().trouble.find("bad_alloc"), std::string::npos) << arena->report().trouble;
  arena->want(kSize);
  arena->produced(kPage);
  arena->stop();
  EXPECT_EQ(arena->ready(), 3 * kPage);
  EXPECT_EQ(given_back, 3);
}

}  // namespace
}  // namespace ebb::memory
