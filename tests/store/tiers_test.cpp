// The memory of every tier.
#include "store/tiers.hpp"

#include <gtest/gtest.h>
#include <thread>

#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(Tiers, WhatCannotBeUsedYetIsNotDiscarded) {
  constexpr std::size_t size = 64 * kKiB;
  Rig rig(Backend::gpu, {.device = size, .host = size, .disk = 0});
  auto tiers = Tiers::create(rig.seams(), rig.setup(), [] {});
  ASSERT_TRUE(tiers) << tiers.error().message;
  const planner::Place first{{planner::Endpoint::tier, 1}, 0}, last{{planner::Endpoint::tier, 1}, size - 4096};
  (*tiers)->want(first, 4096);
  while ((*tiers)->use_of(first, 4096) == Tiers::Usable::later) std::this_thread::yield();
  (*tiers)->stop();
  ASSERT_EQ((*tiers)->use_of(last, 4096), Tiers::Usable::later);
  (*tiers)->discard(last, 4096);
  EXPECT_EQ(*(*tiers)->at(last), std::byte{0}) << "it is as the system made it";
  (*tiers)->discard(first, size);
  EXPECT_EQ(*(*tiers)->at(first), doubles::kPoison);
  EXPECT_EQ(*(*tiers)->at(last), std::byte{0}) << "and so is the part of a range that cannot be used";
}

// What was asked for, what there is, and what to do: seen beforehand, or when the device says so.
TEST(Tiers, DeviceMemoryThatCannotBeHadIsToldByName) {
  for (const bool seen : {true, false}) {
    Rig rig(Backend::gpu, {.device = seen ? std::uint64_t{2} << 30 : std::uint64_t{512} << 20});
    if (!seen) rig.device().fail_nth_map(1);
    const auto refused = Engine::open(rig.seams(), rig.setup());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    for (const char* word : {seen ? "device cache of 2 GiB" : "device cache of 512 MiB", "1 GiB are free on fake",
                             "ask for less with device_cache="}) {
      EXPECT_NE(refused.error().message.find(word), std::string::npos) << word << ": " << refused.error().message;
    }
    EXPECT_EQ(rig.device().allocated(), 0u);
    EXPECT_EQ(rig.device().reserved(), 0u);
  }
}

}  // namespace
}  // namespace ebb::store
