// Leases of shares that their processes do not use: processes with an agent.

#include <algorithm>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>
#include <unistd.h>

#include "pool_borrower.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using test::kChunk;
using test::kMiB;
using test::Place;
using test::PoolBorrower;
using test::Rank;

// Of each process: checkpoints of unknown size leave a quarter of it, those of a slab two slabs.
constexpr std::uint64_t kShare = 16, kQuarter = kShare / 4;
constexpr std::uint64_t kOfOne = (kShare - kQuarter - 1) * kChunk;  // whose process uses a slab
constexpr std::uint64_t kOfNobody = (kShare - kQuarter) * kChunk;   // whose process has not come

TEST(Leases, a_process_writes_from_leases_until_their_owner_needs_them) {
  const Place place;
  Rank first(place, 0, 4, 4 * kShare * kChunk), second(place, 1, 4, 4 * kShare * kChunk);
  PoolBorrower told;
  ASSERT_FALSE(first.error() || second.error());
  told.borrow_all(first, kShare);
  told.await_borrowed(first, kOfOne + 2 * kOfNobody);
  std::map<std::uint32_t, ObjectId> objects;
  for (const std::uint32_t lease : told.lent()) objects[lease] = told.write_from(first, lease, "f", 1000 + lease);
  for (const auto& [lease, object] : objects) first.await_persisted(object);

  // The owner waits for what is lent of its share, and for nothing else.
  ObjectId own = 0;
  std::thread needs([&] { second.await_persisted(own = second.write("s", 1, (kShare - 1) * kMiB)); });
  while (first.storage().counters().bytes_borrowed > 2 * kOfNobody) told.return_recalled(first);
  needs.join();
  EXPECT_EQ(first.storage().counters().bytes_borrowed, 2 * kOfNobody);
  for (const auto& [lease, object] : objects) EXPECT_TRUE(first.read(object, "f", 1000 + lease, kMiB));
  EXPECT_TRUE(second.read(own, "s", 1, (kShare - 1) * kMiB));
}

TEST(Leases, a_lease_outlives_the_agent_and_its_bytes_are_written_by_the_next) {
  const Place place;
  auto agent = std::make_unique<Rank>(place, 0, 2, 2 * kShare * kChunk);
  Rank other(place, 1, 2, 2 * kShare * kChunk);
  PoolBorrower told;
  told.borrow_all(other, kShare);
  told.await_borrowed(other, kOfOne);
  const std::uint32_t lease = *told.lent().begin();
  agent->release();
  agent.reset();  // the process leaves, and its thread was the agent
  const ObjectId borrowed = told.write_from(other, lease, "o", 2000);
  other.await_persisted(borrowed);
  EXPECT_TRUE(other.read(borrowed, "o", 2000, kMiB));
  EXPECT_EQ(other.storage().counters().agents, 2u);

  Rank next(place, 0, 2, 2 * kShare * kChunk);  // in the share that is lent
  std::thread needs([&] { next.await_persisted(next.write("n", 1, (kShare - 1) * kMiB)); });
  while (other.storage().counters().bytes_borrowed > 0) told.return_recalled(other);
  needs.join();
}

TEST(Leases, what_an_agent_had_taken_back_in_part_has_no_memory_once_the_next_has_looked) {
  const Place place;
  auto agent = std::make_unique<Rank>(place, 0, 2, 2 * kShare * kChunk);
  Rank other(place, 1, 2, 2 * kShare * kChunk);
  PoolBorrower told;
  told.borrow_all(other, kShare);
  told.await_borrowed(other, kOfOne);
  const std::uint32_t lease = *told.lent().begin();
  const auto memory = other.storage().memory().use_lease(lease).value();
  std::memset(memory.get(), 1, 2 * kChunk);

  PoolFile pool = PoolFile::open(place.seams().memory->open(pool_name("job-test")).value()).value();
  ASSERT_TRUE(pool.tables().take_back(lease, pool.tables().slab(lease)->owner));  // a kill here leaves the rest
  const os::OwnDescriptor file([&] { return ::open((place.shared() / pool_name("job-test")).c_str(), O_RDONLY); });
  const os::FileRange second = pool.shape().slab(lease + 1);
  const auto written = [&] { return ::lseek(file.fd(), static_cast<off_t>(second.offset), SEEK_DATA); };
  EXPECT_EQ(written(), static_cast<off_t>(second.offset));
  agent->release();
  agent.reset();
  told.produce(other);  // the next agent writes it
  EXPECT_EQ(pool.tables().slab(lease + 1)->state, SlabState::free);
  const off_t next = written();
  EXPECT_TRUE(next < 0 || next >= static_cast<off_t>(second.offset + second.bytes)) << "at " << next;
}

TEST(Leases, who_leaves_with_leases_does_not_keep_their_owner_waiting) {
  const Place place;
  Rank owner(place, 0, 2, 2 * kShare * kChunk);  // whose thread is the agent
  auto other = std::make_unique<Rank>(place, 1, 2, 2 * kShare * kChunk);
  PoolBorrower told;
  told.borrow_all(*other, kShare);
  told.await_borrowed(*other, kOfOne);
  std::thread needs([&] { owner.await_persisted(owner.write("f", 1, (kShare - 1) * kMiB)); });
  while (told.recalled().empty()) std::this_thread::yield();
  other.reset();
  needs.join();
}

TEST(Leases, what_a_process_has_no_use_for_is_not_lent_to_it_again_until_it_has) {
  constexpr std::size_t kRanks = 6;
  const Place place;
  Rank first(place, 0, kRanks, kRanks * kShare * kChunk), second(place, 1, kRanks, kRanks * kShare * kChunk);
  PoolBorrower told;
  NodeMemory& memory = first.storage().memory();
  told.borrow_all(first, kShare);
  constexpr std::uint64_t kAll = kOfOne + (kRanks - 2) * kOfNobody;
  told.await_borrowed(first, kAll);
  const auto of_second = [](std::uint32_t lease) { return lease / kShare == 1; };
  std::uint64_t refused = 0;
  for (const std::uint32_t lease : told.lent()) {
    if (of_second(lease)) continue;
    refused += memory.lease_bytes(lease);
    memory.refuse_lease(lease);
  }
  for (Version version = 2; version < 5; ++version) {  // by the end of each the agent has looked at all leases
    first.await_persisted(first.write("f", version, kMiB));
    EXPECT_EQ(first.storage().counters().bytes_borrowed, kAll - refused) << "what was refused was lent again";
  }

  std::thread needs([&] { second.await_persisted(second.write("s", 1, (kShare - 1) * kMiB)); });
  while (first.storage().counters().bytes_borrowed < (kRanks - 2) * kOfNobody) {
    told.return_recalled(first);
    told.produce(first);
  }
  needs.join();
}

TEST(Leases, who_takes_none_returns_them_and_the_pool_is_whole_again) {
  const Place place;
  Rank first(place, 0, 2, 2 * kShare * kChunk), second(place, 1, 2, 2 * kShare * kChunk);
  PoolBorrower told;
  told.borrow_all(first, kShare);
  told.await_borrowed(first, kOfOne);
  const auto lent = told.lent();
  first.storage().memory().borrow({});  // what is offered from now on is returned at once
  for (const std::uint32_t lease : lent) first.storage().memory().return_lease(lease);
  second.await_persisted(second.write("s", 1, (kShare - 1) * kMiB));
  EXPECT_EQ(first.storage().counters().bytes_borrowed, 0u);
}

}  // namespace
}  // namespace ebb::share
