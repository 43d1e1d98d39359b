// What programs on a GPU do to a cache, on the double of one (tests/python/test_gpu_*.py does it on a real one).
#include <gtest/gtest.h>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(Pitfalls, TwoStoresOnOneGpuDoNotMeet) {
  Rig rig(Backend::gpu);
  rig.setup().device_arena = DeviceArena::direct;  // so that all that it takes is taken at once
  Store& first = rig.store();
  const std::size_t taken = rig.device().allocated();
  {
    Store second = Engine::store_over(Engine::open(rig.seams(), rig.setup()).value());
    EXPECT_EQ(rig.device().allocated(), 2 * taken);
    const StreamHandle on = rig.device().create_stream().value();
    for (Version v = 0; v < 20; ++v) {  // more than either keeps in memory, under the same names
      ASSERT_TRUE(write(first, v, kSize));
      const auto other = bytes_of(1000 + v, kSize);
      ASSERT_TRUE(second.checkpoint(v, {{0, other.data(), kSize}}, {.stream = on}));
      ASSERT_TRUE(rig.device().synchronize());  // `other` ends here
    }
    for (Version v = 20; v-- > 0;) {
      expect_restored(first, v, kSize);
      std::vector<std::byte> out(kSize);
      ASSERT_TRUE(second.restore(v, {{0, out.data(), kSize}}));
      EXPECT_EQ(out, bytes_of(1000 + v, kSize)) << v;
    }
  }
  EXPECT_EQ(rig.device().allocated(), taken) << "the other goes on";
  ASSERT_TRUE(write(first, 100, kSize));
  expect_restored(first, 100, kSize);
}

TEST(Pitfalls, TwoThreadsWithStreamsOfTheirOwn) {
  Rig rig(Backend::gpu);
  Store& store = rig.store();
  const auto work = [&](Version first) {
    const StreamHandle on = rig.device().create_stream().value();
    std::vector<std::vector<std::byte>> fields, out(12, std::vector<std::byte>(kSize));
    for (Version v = 0; v < 12; ++v) {
      fields.push_back(bytes_of(first + v, kSize));
      ASSERT_TRUE(store.checkpoint(first + v, {{0, fields.back().data(), kSize}}, {.stream = on}));
    }
    for (Version v = 12; v-- > 0;) {
      ASSERT_TRUE(store.restore(first + v, {{0, out[static_cast<std::size_t>(v)].data(), kSize}}, {.stream = on}));
    }
    rig.device().destroy_stream(on);  // waits for it
    for (Version v = 0; v < 12; ++v) EXPECT_EQ(out[static_cast<std::size_t>(v)], fields[static_cast<std::size_t>(v)]);
  };
  std::thread other(work, 1000);
  work(0);
  other.join();
}

TEST(Pitfalls, WithoutHostMemoryAtOpenNothingIsLeftBehindOnTheDevice) {
  Rig rig(Backend::gpu, {.host = std::uint64_t{1} << 50});
  const auto refused = Engine::open(rig.seams(), rig.setup());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_NE(refused.error().message.find("host"), std::string::npos) << refused.error().message;
  EXPECT_EQ(rig.device().allocated(), 0u);
}

}  // namespace
}  // namespace ebb::store
