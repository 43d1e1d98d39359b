// Leases of shares that their processes do not use: processes with an agent.

#include <algorithm>
#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>

#include "rank.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using test::kChunk;
using test::kMiB;
using test::Place;
using test::Rank;

// Every lease and recall that a process hears of, repeated ones too.
struct Told {
  using Leases = std::multiset<std::uint32_t>;
  std::mutex mutex;
  std::condition_variable changed;
  Leases lent, recalled;

  NodeMemory::LeaseNews news() {
    return [this](std::uint32_t lease, bool is_lent) {
      const std::lock_guard lock(mutex);
      (is_lent ? lent : recalled).insert(lease);
      changed.notify_all();
    };
  }
  Leases await(Leases Told::* what, std::size_t count) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return (this->*what).size() >= count; }));
    return this->*what;
  }
};

// Four shares of 8 slabs: a quarter is two of them.
constexpr std::uint64_t kShare = 8;

TEST(Leases, a_process_writes_from_leases_until_their_owner_needs_them) {
  const Place place;
  Told told;  // which the threads of the ranks tell
  Rank first(place, 0, 4, 4 * kShare * kChunk), second(place, 1, 4, 4 * kShare * kChunk);
  ASSERT_FALSE(first.error() || second.error());
  ASSERT_EQ(first.storage().memory().lease_bytes(), 2 * kChunk);
  first.storage().memory().borrow(told.news());
  first.write("f", 1, (kShare - 1) * kMiB);
  told.await(&Told::lent, 2 + 2 * 3);  // the second process uses a quarter, and two shares have no process
  const std::uint32_t of_second = *told.lent.lower_bound(kShare);
  ASSERT_LT(of_second, 2 * kShare);

  std::shared_ptr<std::byte> memory = first.storage().memory().use_lease(of_second).value();
  const ObjectId borrowed = first.write_from(memory.get(), "f", 2, 2 * kMiB);
  first.await_persisted(borrowed);
  EXPECT_EQ(first.storage().counters().bytes_borrowed, told.lent.size() * 2 * kChunk);

  // The owner waits for what is lent, and for nothing else.
  ObjectId own = 0;
  std::thread needs([&] { second.await_persisted(own = second.write("s", 1, (kShare - 1) * kMiB)); });
  told.await(&Told::recalled, 2);
  memory.reset();
  for (const std::uint32_t lease : told.recalled) first.storage().memory().return_lease(lease);
  needs.join();
  EXPECT_TRUE(first.read(borrowed, "f", 2, 2 * kMiB));
  EXPECT_TRUE(second.read(own, "s", 1, (kShare - 1) * kMiB));
}

TEST(Leases, a_lease_outlives_the_agent_and_its_bytes_are_written_by_the_next) {
  const Place place;
  Told told;  // which the threads of the ranks tell
  auto agent = std::make_unique<Rank>(place, 0, 2, 2 * kShare * kChunk);
  Rank other(place, 1, 2, 2 * kShare * kChunk);
  other.storage().memory().borrow(told.news());
  other.write("o", 1, (kShare - 1) * kMiB);
  told.await(&Told::lent, 2);
  const std::uint32_t lease = *told.lent.begin();
  const std::shared_ptr<std::byte> memory = other.storage().memory().use_lease(lease).value();
  agent->release();
  agent.reset();  // the process leaves, and its thread was the agent
  const ObjectId borrowed = other.write_from(memory.get(), "o", 2, 2 * kMiB);
  other.await_persisted(borrowed);
  EXPECT_TRUE(other.read(borrowed, "o", 2, 2 * kMiB));
  EXPECT_EQ(other.storage().counters().agents, 2u);
}

TEST(Leases, who_leaves_with_leases_does_not_keep_their_owner_waiting) {
  const Place place;
  Told told;                                     // which the threads of the ranks tell
  Rank owner(place, 0, 2, 2 * kShare * kChunk);  // whose thread is the agent
  auto other = std::make_unique<Rank>(place, 1, 2, 2 * kShare * kChunk);
  other->storage().memory().borrow(told.news());
  other->write("o", 1, (kShare - 1) * kMiB);
  told.await(&Told::lent, 2);
  std::thread needs([&] { owner.await_persisted(owner.write("f", 1, (kShare - 1) * kMiB)); });
  told.await(&Told::recalled, 2);
  other.reset();
  needs.join();
}

// Alone on a node of 24 it is offered more than a tier has segments for.
TEST(Leases, what_a_process_has_no_use_for_is_not_lent_to_it_again_until_it_has) {
  constexpr std::size_t kRanks = 24, kOffered = 3 * (kRanks - 1), kUsed = 63;
  const Place place;
  Told told;  // which the threads of the ranks tell
  Rank first(place, 0, kRanks, kRanks * kShare * kChunk);
  NodeMemory& memory = first.storage().memory();
  memory.borrow(told.news());
  first.await_persisted(first.write("f", 1, (kShare - 1) * kMiB));
  std::map<std::uint32_t, std::shared_ptr<std::byte>> used;
  for (const std::uint32_t lease : told.await(&Told::lent, kOffered)) {
    if (used.size() < kUsed) {
      used[lease] = memory.use_lease(lease).value();
    } else {
      memory.refuse_lease(lease);
    }
  }
  for (Version version = 2; version < 5; ++version) {  // by the end of each the agent has looked at all leases
    first.await_persisted(first.write("f", version, kMiB));
    EXPECT_EQ(told.await(&Told::lent, kOffered).size(), kOffered) << "what was refused was lent again";
  }
  EXPECT_EQ(first.storage().counters().bytes_borrowed, kUsed * 2 * kChunk);

  Rank second(place, 1, kRanks, kRanks * kShare * kChunk);
  std::thread needs([&] { second.await_persisted(second.write("s", 1, (kShare - 1) * kMiB)); });
  for (const std::uint32_t lease : told.await(&Told::recalled, 3)) {
    used.erase(lease);
    memory.return_lease(lease);
  }
  needs.join();
  told.await(&Told::lent, kOffered + kOffered - kUsed);
}

TEST(Leases, who_takes_none_returns_them_and_the_pool_is_whole_again) {
  const Place place;
  Told told;  // which the threads of the ranks tell
  Rank first(place, 0, 2, 2 * kShare * kChunk), second(place, 1, 2, 2 * kShare * kChunk);
  first.storage().memory().borrow(told.news());
  first.write("f", 1, (kShare - 1) * kMiB);
  told.await(&Told::lent, 2);
  first.storage().memory().borrow({});  // what is offered from now on is returned at once
  for (const std::uint32_t lease : told.lent) first.storage().memory().return_lease(lease);
  second.await_persisted(second.write("s", 1, (kShare - 1) * kMiB));
  EXPECT_EQ(first.storage().counters().bytes_borrowed, 0u);
}

}  // namespace
}  // namespace ebb::share
