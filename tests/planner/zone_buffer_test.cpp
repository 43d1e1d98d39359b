#include "planner/zone_buffer.hpp"

#include <gtest/gtest.h>
#include <stdexcept>

namespace ebb::planner {
namespace {

constexpr auto kMoreComes = [](CutIndex) { return false; };
constexpr auto kComplete = [](CutIndex) { return true; };

std::uint32_t taken(ZoneBuffer& buffer, CutIndex cut, std::uint32_t reserve = 0) {
  const auto place = buffer.take(cut, reserve);
  return place ? 10 * place->slot + place->place : 99;
}

TEST(ZoneBuffer, ASlotHasOneCutAndDrainsWhenItIsFullOrComplete) {
  ZoneBuffer buffer(2, 2);
  EXPECT_EQ(taken(buffer, 1), 0u);
  EXPECT_EQ(taken(buffer, 2), 10u);
  EXPECT_EQ(taken(buffer, 1), 1u);
  EXPECT_EQ(buffer.copied(0), 1u);
  EXPECT_EQ(buffer.copied(1), 2u);
  EXPECT_FALSE(buffer.next_drain(kMoreComes)) << "a copy to slot 0 is under way";
  EXPECT_EQ(buffer.copied(0), 1u);
  const auto full = buffer.next_drain(kMoreComes);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->slot, 0u);
  EXPECT_EQ(full->places, 2u);
  EXPECT_EQ(full->cut, 1u);
  EXPECT_FALSE(buffer.next_drain(kMoreComes));
  EXPECT_EQ(buffer.next_drain(kComplete)->slot, 1u);
  EXPECT_TRUE(buffer.has(1));
  buffer.drained(0);
  EXPECT_FALSE(buffer.has(1));
  EXPECT_EQ(taken(buffer, 3), 0u);
}

TEST(ZoneBuffer, WhatFindsNoPlaceHasTheFullestSlotDrainedUnlessOneDrains) {
  ZoneBuffer buffer(2, 3);
  for (CutIndex cut : {1u, 2u, 2u}) taken(buffer, cut);
  buffer.copied(0);
  buffer.copied(1);
  buffer.copied(1);
  EXPECT_FALSE(buffer.next_drain(kMoreComes));
  EXPECT_EQ(taken(buffer, 3), 99u);
  EXPECT_EQ(buffer.next_drain(kMoreComes)->slot, 1u);
  EXPECT_EQ(taken(buffer, 3), 99u);
  EXPECT_FALSE(buffer.next_drain(kMoreComes)) << "slot 1 makes a place";
  buffer.drained(1);
  EXPECT_FALSE(buffer.next_drain(kMoreComes)) << "and has made it";
  EXPECT_EQ(taken(buffer, 3), 10u);
}

TEST(ZoneBuffer, OneWithoutAPlaceHasOneSlotDrainedAndNotTwo) {
  ZoneBuffer buffer(2, 3);
  for (CutIndex cut : {1u, 2u}) taken(buffer, cut);
  buffer.copied(0);
  buffer.copied(1);
  EXPECT_EQ(taken(buffer, 3), 99u);
  const auto first = buffer.next_drain(kMoreComes);
  ASSERT_TRUE(first);
  buffer.drained(first->slot);
  EXPECT_FALSE(buffer.next_drain(kMoreComes));
}

TEST(ZoneBuffer, TheLastPlacesAreReserved) {
  ZoneBuffer buffer(2, 3);
  EXPECT_EQ(taken(buffer, 1, 1), 0u);
  EXPECT_EQ(taken(buffer, 1, 1), 1u);
  EXPECT_EQ(taken(buffer, 1, 1), 99u) << "not in the other slot either: this one drains first";
  EXPECT_EQ(taken(buffer, 1), 2u);
  EXPECT_EQ(taken(buffer, 1, 1), 10u);
}

TEST(ZoneBuffer, AfterAFailureASlotIsUsedAgainWhenNothingOfItIsUnderWay) {
  ZoneBuffer buffer(3, 2);
  taken(buffer, 1), taken(buffer, 1), buffer.copied(0), buffer.copied(0);
  ASSERT_TRUE(buffer.next_drain(kMoreComes));
  taken(buffer, 1), taken(buffer, 1);  // slot 1: copies are under way
  taken(buffer, 2), buffer.copied(2);  // slot 2: none is
  buffer.fail();
  EXPECT_EQ(taken(buffer, 3), 20u);
  EXPECT_EQ(taken(buffer, 4), 99u);
  EXPECT_EQ(buffer.copied(1), 0u);
  EXPECT_EQ(taken(buffer, 4), 99u);
  EXPECT_EQ(buffer.copied(1), 0u);
  EXPECT_EQ(taken(buffer, 4), 10u);
  buffer.drained(0);
  EXPECT_EQ(taken(buffer, 5), 0u);

  EXPECT_EQ(taken(buffer, 6), 99u);
  buffer.fail();
  for (std::uint32_t slot : {0u, 1u, 2u}) EXPECT_EQ(buffer.copied(slot), 0u);
  taken(buffer, 7), buffer.copied(0);
  EXPECT_FALSE(buffer.next_drain(kMoreComes)) << "what found no place has failed";
}

TEST(ZoneBuffer, WhatDidNotBeginDoesNotEnd) {
  EXPECT_THROW(ZoneBuffer(0, 1), std::logic_error);
  EXPECT_THROW(ZoneBuffer(1, 0), std::logic_error);
  ZoneBuffer buffer(1, 1);
  EXPECT_THROW(buffer.copied(0), std::logic_error);
  EXPECT_THROW(buffer.copied(1), std::logic_error);
  EXPECT_THROW(buffer.drained(0), std::logic_error);
  EXPECT_THROW(buffer.drained(1), std::logic_error);
}

}  // namespace
}  // namespace ebb::planner
