#include "cache/staging_ring.hpp"

#include <cstdint>
#include <future>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::cache {
namespace {

using doubles::FakeDevice;
constexpr std::size_t kSlot = 8192, kSlots = 3;

class StagingRings : public testing::TestWithParam<bool> {};

TEST_P(StagingRings, have_their_slots_for_both_directions) {
  FakeDevice device;
  StagingRing ring = StagingRing::create(device, kSlot, kSlots, GetParam()).value();
  EXPECT_EQ(ring.size(), 6u * kSlot);
  std::set<std::byte*> places;
  for (std::size_t slot = 0; slot < 6; ++slot) {
    std::byte* const first = ring.at(slot * kSlot);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0u);
    EXPECT_EQ(ring.at(slot * kSlot + kSlot - 1), first + kSlot - 1) << "a slot is in one piece";
    EXPECT_EQ(ring.end_of(slot * kSlot + 100, 4096),
              static_cast<std::size_t>(first + 100 + 4096 - ring.memory().data()));
    *(first + kSlot - 1) = std::byte{1};
    places.insert(first);
  }
  EXPECT_EQ(places.size(), 6u);
  EXPECT_EQ(*places.rbegin() - *places.begin(), static_cast<std::ptrdiff_t>(5 * kSlot));
  EXPECT_THROW(static_cast<void>(ring.end_of(kSlot - 4096, 4097)), std::logic_error);
  EXPECT_EQ(StagingRing::create(device, kSlot, 0, GetParam()).value().size(), 0u);
  EXPECT_THROW(static_cast<void>(StagingRing::create(device, 5000, 3, GetParam())), std::logic_error);
  const Result<StagingRing> refused = StagingRing::create(device, std::size_t{1} << 62, 1 << 10, GetParam());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

INSTANTIATE_TEST_SUITE_P(Strategies, StagingRings, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "direct" : "incremental"); });

TEST(StagingRing, comes_slot_by_slot_the_first_of_each_direction_first) {
  FakeDevice device(discrete());
  Watch watch;
  std::atomic<int> touches{0};
  std::promise<void> first_two, all;
  MemoryOptions options = watch.options();
  options.touch = [&, some = first_two.get_future().share(), rest = all.get_future().share()](std::byte* at,
                                                                                              std::size_t n) {
    EXPECT_EQ(n, kSlot);
    (++touches <= 2 ? some : rest).wait();
    return os::populate(at, n);
  };
  StagingRing ring = StagingRing::create(device, kSlot, kSlots, false, std::move(options)).value();
  const auto ready = [&](std::size_t slot) { return ring.memory().ready() >= ring.end_of(slot * kSlot, kSlot); };
  EXPECT_FALSE(ready(0)) << "no call waited for it";
  EXPECT_EQ(device.pinned(), 0u);
  first_two.set_value();
  watch.until([&] { return ready(0) && ready(kSlots); });
  for (const std::size_t other : {1, 2, 4, 5}) EXPECT_FALSE(ready(other));
  all.set_value();
  watch.until_ready(ring.memory(), ring.size());
  EXPECT_EQ(device.pinned(), ring.size());
  EXPECT_EQ(ring.memory().report().pieces, 2 * kSlots);
}

TEST(StagingRing, that_cannot_be_registered_is_used_as_it_is_and_says_so_once) {
  FakeDevice device(discrete());
  device.limit_pinned(2 * kSlot);
  Watch watch;
  StagingRing ring = StagingRing::create(device, kSlot, kSlots, false, watch.options()).value();
  watch.until_ready(ring.memory(), ring.size());
  watch.until_trouble();
  EXPECT_EQ(watch.troubles().size(), 1u);
  EXPECT_EQ(device.pinned(), 2 * kSlot);
}

}  // namespace
}  // namespace ebb::cache
