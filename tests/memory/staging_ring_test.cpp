#include "memory/staging_ring.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "platform/testing/fake_device.hpp"

namespace ebb::memory {
namespace {

TEST(StagingRing, has_its_slots_for_both_directions) {
  platform::testing::FakeDevice device;
  StagingRing ring = StagingRing::create(device, 8192, 3).value();
  EXPECT_EQ(ring.size(), 6u * 8192);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ring.data()) % 4096, 0u);
  ring.data()[ring.size() - 1] = std::byte{1};
  EXPECT_EQ(StagingRing::create(device, 8192, 0).value().size(), 0u);
  EXPECT_THROW(static_cast<void>(StagingRing::create(device, 5000, 3)), std::logic_error);
  const Result<StagingRing> refused = StagingRing::create(device, std::size_t{1} << 62, 1 << 10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

}  // namespace
}  // namespace ebb::memory
