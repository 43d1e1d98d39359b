// A lender and borrowers, in one process: leases come, are recalled, returned and overdue.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <semaphore>
#include <thread>

#include "parties.hpp"

namespace ebb::share {
namespace {

using test::kLease;
using test::kLong;
using test::Place;
using test::TestBorrower;
using test::TestLender;

TEST(Leases, are_few_and_large_where_much_is_lent) {
  EXPECT_EQ(piece_of(kLease), kLease);
  EXPECT_EQ(piece_of(8 * kLease), kLease);
  EXPECT_EQ(piece_of(8 * kLease + 1), 2 * kLease);
  EXPECT_EQ(piece_of(8ull << 30), 1ull << 30);
}

TEST(Leases, come_ahead_and_go_back_when_the_lender_wants_them) {
  const Place place;
  TestLender lender(place, 3);
  TestBorrower borrower(place);
  const auto leases = borrower.await_lent(3);
  EXPECT_EQ(lender.lent(), 3 * kLease);
  std::map<std::uint32_t, std::shared_ptr<std::byte>> memory;
  for (const std::uint32_t lease : leases) {
    ASSERT_EQ(borrower->lease_bytes(lease), kLease);
    memory[lease] = borrower->use_lease(lease).value();
    std::memset(memory[lease].get(), static_cast<int>(lease), kLease);
  }
  for (const std::uint32_t lease : leases) EXPECT_EQ(memory[lease].get()[kLease - 1], static_cast<std::byte>(lease));

  std::thread program([&] { EXPECT_TRUE(lender->offer(kLease, kLong)); });
  for (const std::uint32_t lease : borrower.await_recalled(2)) {
    memory.erase(lease);
    borrower->return_lease(lease);
  }
  program.join();
  EXPECT_EQ(lender.lent(), kLease);
  EXPECT_EQ(borrower->leases().size(), 1u);
}

// Those of a place, in which a test can break something.
class RealSockets : public os::LocalSockets {
 public:
  explicit RealSockets(std::shared_ptr<os::LocalSockets> real) : real_(std::move(real)) {}
  Result<std::unique_ptr<os::LocalListener>> listen(const std::string& name) override { return real_->listen(name); }
  Result<std::unique_ptr<os::LocalConnection>> connect(const std::string& name) override {
    return real_->connect(name);
  }
  Result<os::OwnDescriptor> this_process() override { return real_->this_process(); }
  Result<std::size_t> wait(std::span<os::Waiting> all, std::chrono::milliseconds limit) override {
    return real_->wait(all, limit);
  }

 private:
  const std::shared_ptr<os::LocalSockets> real_;
};

// Its sockets work, but no one is told of them.
class Unheard : public Place {
  class Sockets final : public RealSockets {
   public:
    using RealSockets::RealSockets;
    Result<std::size_t> wait(std::span<os::Waiting>, std::chrono::milliseconds) override {
      return Error{Errc::io_error, "poll: no memory"};
    }
  };

 public:
  NodeSeams seams() const override {
    NodeSeams seams = Place::seams();
    seams.sockets = std::make_shared<Sockets>(seams.sockets);
    return seams;
  }
};

TEST(Leases, come_and_go_where_no_wait_succeeds) {
  const Unheard place;
  TestLender lender(place, 2);
  TestBorrower borrower(place);
  borrower.await_lent(2);
  std::thread program([&] { EXPECT_TRUE(lender->offer(kLease, kLong)); });
  for (const std::uint32_t lease : borrower.await_recalled(1)) borrower->return_lease(lease);
  program.join();
  EXPECT_EQ(lender.lent(), kLease);
}

TEST(Leases, both_sides_count_the_same_where_one_is_lent_while_another_is_on_its_way_back) {
  const Place place;
  TestLender lender(place, 2);
  TestBorrower borrower(place);
  borrower.await_lent(2);
  EXPECT_FALSE(lender->offer(kLease, std::chrono::nanoseconds{0}));
  const std::uint32_t recalled = *borrower.await_recalled(1).begin();
  EXPECT_TRUE(lender->offer(3 * kLease, kLong));
  borrower.await_lent(3);
  borrower->return_lease(recalled);
  borrower.await_lent(4);
  EXPECT_EQ(lender.lent(), 3 * kLease);
  EXPECT_EQ(borrower->leases().size(), 3u);
}

// Accepting a connection always fails.
class Full : public Place {
  class Listener final : public os::LocalListener {
   public:
    Listener(std::unique_ptr<os::LocalListener> real, std::atomic<int>& looks)
        : real_(std::move(real)), looks_(looks) {}
    int fd() const noexcept override { return real_->fd(); }
    Result<std::unique_ptr<os::LocalConnection>> accept() override {
      ++looks_;
      return Error{Errc::io_error, "accept: too many open files"};
    }

   private:
    const std::unique_ptr<os::LocalListener> real_;
    std::atomic<int>& looks_;
  };
  class Sockets final : public RealSockets {
   public:
    Sockets(std::shared_ptr<os::LocalSockets> real, std::atomic<int>& looks)
        : RealSockets(std::move(real)), looks_(looks) {}
    Result<std::unique_ptr<os::LocalListener>> listen(const std::string& name) override {
      auto real = RealSockets::listen(name);
      if (!real) return real.error();
      return std::unique_ptr<os::LocalListener>(std::make_unique<Listener>(std::move(*real), looks_));
    }

   private:
    std::atomic<int>& looks_;
  };

 public:
  NodeSeams seams() const override {
    NodeSeams seams = Place::seams();
    seams.sockets = std::make_shared<Sockets>(seams.sockets, looks);
    return seams;
  }
  mutable std::atomic<int> looks{0};
};

TEST(Leases, a_lender_without_descriptors_looks_now_and_then) {
  const Full place;
  TestLender lender(place, 1);
  TestBorrower borrower(place);
  lender.await([&] { return place.looks > 1; });
  const int before = place.looks;
  const auto begun = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(20 * kPause);
  const int looks = place.looks - before;
  EXPECT_LE(looks, (std::chrono::steady_clock::now() - begun) / kPause + 1);
}

TEST(Leases, a_borrower_takes_no_more_than_it_wants) {
  const Place place;
  TestLender first(place, 2), second(place, 2);
  TestBorrower modest(place, 3 * kLease), other(place);
  const auto all = [&] { return first.lent() + second.lent() == 4 * kLease; };
  first.await([&] { return all() && modest->leases().size() + other->leases().size() == 4; });
  EXPECT_LE(modest->leases().size(), 3u);
}

TEST(Leases, a_borrower_counts_nothing_that_it_did_not_take) {
  const Place place;
  const auto memory = std::make_shared<test::HookedFabric>();
  std::atomic<int> grants{0};
  memory->before_lend = [&] {
    ++grants;
    return Result<void>();
  };
  TestLender first(place, 2, memory), second(place, 2, memory);
  TestBorrower borrower(place, 2 * kLease);
  const auto leases = borrower.await_lent(2);
  first.await([&] { return grants == 4 && first.lent() + second.lent() == 2 * kLease; });
  for (const std::uint32_t lease : leases) borrower->return_lease(lease);
  borrower.await_lent(4);
  first.await([&] { return first.lent() + second.lent() == 2 * kLease; });
  EXPECT_EQ(borrower->leases().size(), 2u);
}

TEST(Leases, a_lenders_share_is_divided_as_its_memory_is) {
  const Place place;
  TestLender lender(place, 4, {}, planner::kWholeLink / 2);
  TestBorrower first(place, 2 * kLease);
  const std::uint32_t lease = *first.await_lent(2).begin();
  EXPECT_EQ(first->terms(lease).link, planner::kWholeLink / 2) << "it comes before the lease";
  TestBorrower second(place, 2 * kLease);
  EXPECT_EQ(second->terms(*second.await_lent(2).begin()).link, planner::kWholeLink / 4);
  lender.await([&] { return first->terms(lease).link == planner::kWholeLink / 4; });
  EXPECT_NE(first->terms(lease).lender, 0u);
  EXPECT_EQ(first->terms(lease + 1000).link, planner::kWholeLink) << "it has no such lease";
}

TEST(Leases, what_is_not_returned_in_time_is_named_and_stays_its_borrowers) {
  const Place place;
  TestLender lender(place, 1);
  TestBorrower borrower(place);
  const std::uint32_t lease = *borrower.await_lent(1).begin();
  auto memory = borrower->use_lease(lease).value();
  const auto late = lender->offer(0, std::chrono::nanoseconds{0});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::timed_out);
  const std::string who = "process " + std::to_string(::getpid());
  EXPECT_NE(late.error().message.find(who + " " + std::to_string(kLease) + " bytes"), std::string::npos)
      << late.error().message;
  lender.await([&] { return !lender.warnings().empty(); });
  EXPECT_NE(lender.warnings()[0].find(who + " has not returned"), std::string::npos);
  EXPECT_EQ(lender.lent(), kLease);
  std::memset(memory.get(), 1, kLease);  // it is its memory still
  memory.reset();
  borrower->return_lease(lease);
  EXPECT_TRUE(lender->offer(0, kLong));
  EXPECT_EQ(lender.lent(), 0u);
}

TEST(Leases, a_call_that_waits_ends_when_a_later_one_lends_more) {
  const Place place;
  TestLender lender(place, 2);
  TestBorrower borrower(place);
  borrower.await_lent(2);
  std::thread program([&] { EXPECT_TRUE(lender->offer(0, kLong)); });
  const auto recalled = borrower.await_recalled(2);
  EXPECT_TRUE(lender->offer(2 * kLease, kLong));
  program.join();  // though none has been returned
  EXPECT_EQ(lender.lent(), 2 * kLease);
  for (const std::uint32_t lease : recalled) borrower->return_lease(lease);
}

TEST(Leases, what_a_borrower_cannot_map_is_lent_to_it_no_more) {
  class Unmappable final : public device::PeerFabric {
   public:
    std::size_t granularity() const noexcept override { return 4096; }
    Result<std::unique_ptr<device::LentMemory>> lend(std::size_t) override {
      return Error{Errc::out_of_memory, "none"};
    }
    Result<std::shared_ptr<std::byte>> map(const device::LentMemory&) override { return map(-1, 0); }
    Result<std::shared_ptr<std::byte>> map(int, std::size_t) override {
      return Error{Errc::unsupported, "no peer access"};
    }
  };
  const Place place;
  TestLender lender(place, 1);
  TestBorrower borrower(place, UINT64_MAX, std::make_shared<Unmappable>());
  const std::uint32_t lease = *borrower.await_lent(1).begin();
  EXPECT_FALSE(borrower->use_lease(lease));
  borrower->refuse_lease(lease);
  lender.await([&] { return lender.lent() == 0; });
  TestBorrower other(place);  // which can
  other.await_lent(1);
  EXPECT_TRUE(borrower->leases().empty());
}

TEST(Leases, a_lender_without_the_memory_offers_what_it_has_and_says_so) {
  const Place place;
  const auto memory = std::make_shared<test::HookedFabric>();
  memory->before_lend = [made = 0]() mutable {
    return made++ == 0 ? Result<void>() : Error{Errc::out_of_memory, "the device is full"};
  };
  TestLender lender(place, std::uint64_t{1} << 32, memory);
  TestBorrower borrower(place, 3 * kLease);
  borrower.await_lent(1);
  lender.await([&] { return lender->state().offered == kLease; });
  EXPECT_EQ(lender.lent(), kLease);
  ASSERT_FALSE(lender.warnings().empty());
  EXPECT_EQ(lender.warnings().back(), "no more than 67108864 bytes can be lent: the device is full");
  EXPECT_TRUE(lender->offer(kLease, kLong));
}

TEST(Leases, what_is_being_mapped_while_a_store_closes_goes_back_once_it_is_unmapped) {
  const Place place;
  TestLender lender(place, 2);
  const auto fabric = std::make_shared<test::HookedFabric>();
  std::binary_semaphore maps{0}, may_end{0};
  fabric->before_map = [&] {
    maps.release();
    may_end.acquire();
  };
  TestBorrower borrower(place, UINT64_MAX, fabric);
  const std::uint32_t lease = *borrower.await_lent(2).begin();
  const planner::LeaseId of_lender = lender->state().leases.front().lease;
  std::thread program([&] { EXPECT_TRUE(borrower->use_lease(lease)); });
  maps.acquire();
  borrower->borrow({});
  lender.await([&] { return lender.lent() <= kLease; });
  const auto left = lender->state().leases;
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].lease, of_lender);
  may_end.release();
  program.join();
  lender.await([&] { return lender.lent() == 0; });
}

TEST(Leases, a_store_that_closes_returns_what_it_has_once_it_is_unmapped) {
  const Place place;
  TestLender lender(place, 2);
  std::shared_ptr<std::byte> memory;
  {
    TestBorrower borrower(place);
    memory = borrower->use_lease(*borrower.await_lent(2).begin()).value();
  }
  lender.await([&] { return lender.lent() == kLease; });
  std::memset(memory.get(), 1, kLease);
  memory.reset();
  lender.await([&] { return lender.lent() == 0; });
}

TEST(Leases, memory_of_a_device_that_cannot_be_opened_is_used_and_its_terms_say_why) {
  const Place place;
  TestLender lender(place, 1);
  const auto fabric = std::make_shared<test::HookedFabric>();
  fabric->owner_of_all = Error{Errc::out_of_memory, "cannot open a context on cuda:3: out of memory"};
  TestBorrower borrower(place, UINT64_MAX, fabric);
  const std::uint32_t lease = *borrower.await_lent(1).begin();
  const auto memory = borrower->use_lease(lease).value();
  std::memset(memory.get(), 1, kLease);
  const auto owner = borrower->terms(lease).owner;
  ASSERT_FALSE(owner);
  EXPECT_EQ(owner.error().message, "cannot open a context on cuda:3: out of memory");
}

TEST(Leases, a_lender_that_is_opened_later_is_found) {
  const Place place;
  TestBorrower borrower(place);
  for (int round = 0; round < 2; ++round) {  // the second has the first one's name
    TestLender lender(place, 1);
    const std::size_t known = static_cast<std::size_t>(round) + 1;
    borrower.await_lent(known);
    std::thread closing([&] { static_cast<void>(static_cast<bool>(lender->offer(0, kLong))); });
    const auto recalled = borrower.await_recalled(known);
    borrower->return_lease(*recalled.rbegin());
    closing.join();
  }
}

}  // namespace
}  // namespace ebb::share
