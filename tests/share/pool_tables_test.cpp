#include "share/pool/pool_tables.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <vector>

namespace ebb::share {
namespace {

using State = SlabState;

class PoolTablesTest : public ::testing::Test {
 protected:
  Member admit(pid_t pid, std::uint64_t share = 0) {
    const Member member = tables_.next_member().value();
    tables_.admit({member, {pid, static_cast<std::uint64_t>(pid) * 10}, share});
    return member;
  }
  PoolShape shape_ = choose_shape(64 << 20, kDefaultChunk, 8).value();
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(shape_.tables_end() / 8);
  std::byte* bytes_ = reinterpret_cast<std::byte*>(memory_.data());
  PoolTables tables_{bytes_, shape_};
};

TEST_F(PoolTablesTest, each_agent_has_a_generation) {
  EXPECT_EQ(tables_.agent(), 0u);
  EXPECT_EQ(tables_.take_over(), 1u);
  EXPECT_EQ(tables_.take_over(), 2u);
  EXPECT_EQ(tables_.agent(), 2u);
}

TEST_F(PoolTablesTest, a_member_is_found_until_it_is_dismissed_and_never_mistaken_for_the_next) {
  const Member first = admit(7, 100), second = admit(8);
  EXPECT_EQ(first, (Member{0, 1}));
  EXPECT_EQ(second, (Member{1, 1}));
  EXPECT_EQ(tables_.process(0), (PoolProcess{first, {7, 70}, 100}));
  EXPECT_TRUE(tables_.dismiss(first));
  EXPECT_FALSE(tables_.dismiss(first));
  EXPECT_EQ(tables_.process(0), std::nullopt);
  const Member third = admit(7);  // the number was reused
  EXPECT_EQ(third, (Member{0, 3}));
  EXPECT_FALSE(tables_.dismiss(first));
  EXPECT_FALSE(tables_.dismiss({0, 4}));
  EXPECT_FALSE(tables_.dismiss({shape_.processes, 1}));
  EXPECT_TRUE(tables_.process(0));
}

TEST_F(PoolTablesTest, a_full_table_is_an_error) {
  for (std::uint32_t i = 0; i < shape_.processes; ++i) admit(1);
  EXPECT_EQ(tables_.next_member().error().code, Errc::no_space);
  EXPECT_TRUE(tables_.dismiss({5, 1}));
  EXPECT_EQ(tables_.next_member().value(), (Member{5, 3}));
}

// Every transition from every state, for the owner and for another.
TEST_F(PoolTablesTest, a_slab_changes_as_its_owner_and_state_allow_and_not_otherwise) {
  const Member owner = admit(7), other = admit(8);
  const auto bring = [&](State state) {
    static_cast<void>(tables_.take_back(3, owner));
    EXPECT_EQ(state == State::free || tables_.lend(3, owner), true);
    EXPECT_EQ(state != State::recalled || tables_.recall(3, owner), true);
  };
  for (const State state : {State::free, State::lent, State::recalled}) {
    for (const bool own : {true, false}) {
      const Member member = own ? owner : other;
      bring(state);
      EXPECT_EQ(tables_.lend(3, member), state == State::free);
      bring(State::free);
      static_cast<void>(tables_.take_back(3, other));
      bring(state);
      EXPECT_EQ(tables_.recall(3, member), own && state == State::lent);
      bring(state);
      EXPECT_EQ(tables_.take_back(3, member), own && state != State::free);
    }
  }
  bring(State::recalled);
  EXPECT_EQ(tables_.slab(3), (Slab{State::recalled, owner}));
  EXPECT_EQ(tables_.slab(2), Slab{});
}

TEST_F(PoolTablesTest, a_slab_of_one_who_is_no_member_is_damaged) {
  const Member owner = admit(7);
  EXPECT_TRUE(tables_.lend(0, owner));
  EXPECT_TRUE(tables_.dismiss(owner));
  EXPECT_EQ(tables_.slab(0), std::nullopt);
  admit(9);
  EXPECT_EQ(tables_.slab(0), std::nullopt);
}

TEST_F(PoolTablesTest, any_memory_is_a_value_or_none) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    for (auto& word : memory_) {
      word = random() % 4 == 0 ? random() : random() % 8 << (random() % 2 * 48) | random() % 4;
    }
    for (std::uint32_t slot = 0; slot < shape_.processes; ++slot) {
      const auto found = tables_.process(slot);
      EXPECT_TRUE(!found || (found->process.pid > 0 && found->share <= shape_.budget && found->member.slot == slot));
    }
    for (std::uint32_t i = 0; i < shape_.slabs(); ++i) {
      const auto found = tables_.slab(i);
      if (!found || found->state == State::free) continue;
      EXPECT_EQ(tables_.process(found->owner.slot)->member, found->owner);
    }
  }
}

TEST_F(PoolTablesTest, a_reader_never_sees_words_of_two_processes) {
  std::atomic<bool> stop{false};
  std::jthread agent([&] {
    for (pid_t pid = 1; !stop; ++pid)
      static_cast<void>(tables_.dismiss(admit(pid, static_cast<std::uint64_t>(pid % 64))));
  });
  for (int seen = 0, i = 0; i < 2'000'000 && seen < 2'000; ++i) {
    const auto found = tables_.process(0);
    if (!found) continue;
    ++seen;
    ASSERT_EQ(found->process.start, static_cast<std::uint64_t>(found->process.pid) * 10);
    ASSERT_EQ(found->share, static_cast<std::uint64_t>(found->process.pid % 64));
  }
  stop = true;
}

}  // namespace
}  // namespace ebb::share
