// Memory that is freed right after a call in stream order, as allocators of GPU memory free it: it is the next
// allocation's at once, and what that does comes behind on the same stream. On the double of a GPU and on a real one.
#include <gtest/gtest.h>

#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// One buffer, given out again as soon as it is freed: everything that a stream does with it is done in the stream's
/// order, and by nothing else.
class CachingAllocator {
 public:
  explicit CachingAllocator(device::Device& device) : device_(device), memory_(device.allocate(kSize).value()) {}
  ~CachingAllocator() { device_.free(memory_, kSize); }
  std::byte* allocate() {
    EXPECT_FALSE(std::exchange(out_, true));
    return memory_;
  }
  void free(std::byte*) { out_ = false; }

 private:
  device::Device& device_;
  std::byte* const memory_;
  bool out_ = false;
};

class FreedRightAfter : public ::testing::TestWithParam<Backend> {
 protected:
  static constexpr Version kCount = 12;  // several times what the caches hold
  void SetUp() override {
    if (GetParam() == Backend::cuda && !device::current_cuda_device()) GTEST_SKIP() << device::cuda_absent_reason();
    rig.emplace(GetParam());
    store = &rig->store();
    device = rig->seams().device.get();
    allocator.emplace(*device);
    on = device->create_stream().value();
    staged = device->allocate_host(kPlaces * kSize).value();
    for (Version v = 0; v < kCount; ++v) {
      const auto bytes = bytes_of(v, kSize);
      std::copy(bytes.begin(), bytes.end(), place(v));
    }
    std::fill_n(place(kJunk), kSize, std::byte{0x77});
  }
  void TearDown() override {
    if (!rig) return;
    ASSERT_TRUE(store->close());
    device->destroy_stream(on);
    allocator.reset();
    device->free_host(staged, kPlaces * kSize);
  }
  // What a kernel of the application reads and writes is here: versions, junk, and what came back of each version.
  static constexpr Version kJunk = kCount, kBack = kCount + 1;
  static constexpr std::size_t kPlaces = 2 * kCount + 1;
  std::byte* place(Version v) { return staged + static_cast<std::size_t>(v) * kSize; }
  void kernel(void* to, const void* from) { device->copy(on, to, from, kSize).value(); }
  std::vector<std::byte> back(Version v) { return {place(kBack + v), place(kBack + v) + kSize}; }

  std::optional<Rig> rig;
  Store* store = nullptr;
  device::Device* device = nullptr;
  std::optional<CachingAllocator> allocator;
  StreamHandle on = 0;
  std::byte* staged = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Double, FreedRightAfter, ::testing::Values(Backend::gpu));
INSTANTIATE_TEST_SUITE_P(Cuda, FreedRightAfter, ::testing::Values(Backend::cuda));

TEST_P(FreedRightAfter, ACheckpointHasWhatWasThereBefore) {
  for (Version v = 0; v < kCount; ++v) {
    std::byte* const field = allocator->allocate();
    kernel(field, place(v));
    ASSERT_TRUE(store->checkpoint(v, {{0, field, kSize}}, {.stream = on}));
    allocator->free(field);
    std::byte* const other = allocator->allocate();
    ASSERT_EQ(other, field);
    kernel(other, place(kJunk));
    allocator->free(other);
  }
  for (Version v = kCount; v-- > 0;) {
    std::vector<std::byte> out(kSize);
    ASSERT_TRUE(store->restore(v, {{0, out.data(), kSize}}));
    EXPECT_EQ(out, bytes_of(v, kSize)) << v;
  }
}

TEST_P(FreedRightAfter, ARestoreDoesNotReachTheNextOwner) {
  for (Version v = 0; v < kCount; ++v) ASSERT_TRUE(write(*store, v, kSize));
  const auto read_and_free = [&](Version v) {
    std::byte* const out = allocator->allocate();
    ASSERT_TRUE(store->restore(v, {{0, out, kSize}}, {.keep = true, .stream = on}));
    kernel(place(kBack + v), out);
    allocator->free(out);
  };
  for (Version v = kCount; v-- > 0;) {
    read_and_free(v);
    // The same memory again, for something else: neither the copy before nor this one may come late.
    std::byte* const other = allocator->allocate();
    ASSERT_TRUE(store->restore(v, {{0, other, kSize}}, {.stream = on}));
    allocator->free(other);
    std::byte* const third = allocator->allocate();
    kernel(third, place(kJunk));
    kernel(place(v), third);
    allocator->free(third);
  }
  ASSERT_TRUE(device->synchronize());
  for (Version v = 0; v < kCount; ++v) {
    EXPECT_EQ(back(v), bytes_of(v, kSize)) << v;
    EXPECT_TRUE(std::all_of(place(v), place(v) + kSize, [](std::byte b) { return b == std::byte{0x77}; })) << v;
  }
}

}  // namespace
}  // namespace ebb::store
