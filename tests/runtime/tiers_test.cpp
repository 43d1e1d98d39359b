// The memory of every tier, as far as it has come to be.
#include "runtime/tiers.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "support.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

TEST(Tiers, WhatCannotBeUsedYetIsNotDiscarded) {
  constexpr std::size_t size = 64 * kKiB;
  Rig rig(Backend::gpu, {.device = size, .host = size, .disk = 0});
  auto tiers = Tiers::create(rig.seams(), rig.setup(), [] {});
  ASSERT_TRUE(tiers) << tiers.error().message;
  const policy::Place first{{policy::Endpoint::tier, 1}, 0}, last{{policy::Endpoint::tier, 1}, size - 4096};
  (*tiers)->want(first, 4096);
  while ((*tiers)->use_of(first, 4096) == Tiers::Use::later) std::this_thread::yield();
  (*tiers)->stop();
  ASSERT_EQ((*tiers)->use_of(last, 4096), Tiers::Use::later);
  (*tiers)->discard(last, 4096);
  EXPECT_EQ(*(*tiers)->at(last), std::byte{0}) << "it is as the system made it";
  (*tiers)->discard(first, size);
  EXPECT_EQ(*(*tiers)->at(first), platform::testing::kPoison);
  EXPECT_EQ(*(*tiers)->at(last), std::byte{0}) << "and so is the part of a range that cannot be used";
}

}  // namespace
}  // namespace ebb::runtime
