#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "memory/device_arena.hpp"
#include "memory/host_arena.hpp"
#include "platform/testing/fake_device.hpp"

namespace ebb::memory {
namespace {

bool aligned(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0; }

TEST(HostArena, is_aligned_padded_and_moves) {
  platform::testing::FakeDevice device;
  HostArena arena = HostArena::create(device, 5000).value();
  EXPECT_EQ(arena.size(), 8192u);
  EXPECT_TRUE(aligned(arena.data()));
  arena.data()[8191] = std::byte{1};

  std::byte* const memory = arena.data();
  HostArena moved = std::move(arena);
  EXPECT_EQ(arena.data(), nullptr);
  EXPECT_EQ(arena.size(), 0u);
  EXPECT_EQ(moved.data(), memory);
  moved = HostArena::create(device, 4096).value();
  EXPECT_EQ(moved.size(), 4096u);
}

TEST(HostArena, nothing_is_no_memory_and_too_much_is_refused_by_name) {
  platform::testing::FakeDevice device;
  EXPECT_EQ(HostArena::create(device, 0).value().data(), nullptr);
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX}) {
    const Result<HostArena> refused = HostArena::create(device, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  }
}

TEST(DeviceArena, gives_its_memory_back_once) {
  platform::testing::FakeDevice device;
  {
    DeviceArena arena = DeviceArena::create(device, 5000).value();
    EXPECT_EQ(arena.size(), 8192u);
    EXPECT_TRUE(aligned(arena.data()));
    EXPECT_EQ(device.allocated(), 8192u);
    DeviceArena moved = std::move(arena);
    EXPECT_EQ(arena.data(), nullptr);
    moved = DeviceArena::create(device, 4096).value();
    EXPECT_EQ(device.allocated(), 4096u);
  }
  EXPECT_EQ(device.allocated(), 0u);
  EXPECT_TRUE(device.violations().empty());
}

TEST(DeviceArena, nothing_is_no_memory_and_too_much_is_refused_by_name) {
  platform::testing::FakeDevice device;
  EXPECT_EQ(DeviceArena::create(device, 0).value().data(), nullptr);
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX}) {
    const Result<DeviceArena> refused = DeviceArena::create(device, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  }
}

}  // namespace
}  // namespace ebb::memory
