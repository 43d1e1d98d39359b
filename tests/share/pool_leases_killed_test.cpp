// Lenders, borrowers and agents of a pool that are killed while its shares are lent and recalled.
#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sys/prctl.h>
#include <thread>
#include <utility>

#include "tests/long_form.hpp"
#include "tests/share/pool_borrower.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using test::in_child;
using test::kChunk;
using test::kMiB;
using test::Place;
using test::PoolBorrower;
using test::Rank;
using test::status_of;

constexpr std::uint64_t kShare = 16, kPool = 4 * kShare * kChunk;

// What processes tell each other: each step is taken by all who wait for it.
struct Steps {
  Steps() { EXPECT_EQ(::pipe(ends), 0); }
  ~Steps() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void tell() { EXPECT_EQ(::write(ends[1], "xxxx", 4), 4); }
  bool told(int limit_ms = 0) {
    pollfd one{ends[0], POLLIN, 0};
    return ::poll(&one, 1, limit_ms) == 1;
  }
  int ends[2];
};

// Rank 0, whose thread is the agent at first.
void serve(const Place& place, Steps& ready, Steps& end) {
  Rank rank(place, 0, 4, kPool);
  rank.await_persisted(rank.write("agent", 1, kMiB));
  ready.tell();
  while (!end.told(10)) {
  }
}

// Rank 1 writes from all that it is lent, and returns what is recalled.
void borrow(const Place& place, Steps& ready, Steps& borrowed, Steps& end) {
  while (!ready.told(10)) {
  }
  Rank rank(place, 1, 4, kPool);
  PoolBorrower told;
  told.borrow_all(rank, kShare);
  bool said = false;
  for (Version version = 0; !end.told(); ++version) {
    const auto lent = told.lent();
    for (const std::uint32_t lease : lent) told.write_from(rank, lease, "lease" + std::to_string(lease), version);
    told.produce(rank);
    told.return_recalled(rank);
    if (!lent.empty() && !std::exchange(said, true)) borrowed.tell();
  }
}

// Rank 2 needs all of its share of a sudden.
void need(const Place& place, Steps& ready, Steps& go) {
  while (!ready.told(10)) {
  }
  Rank rank(place, 2, 4, kPool);
  while (!go.told(10)) {
  }
  for (Version version = 1; version < 8; ++version) {
    const std::uint64_t at = static_cast<std::uint64_t>(version - 1) * 2 * kMiB;
    rank.await_persisted(rank.write("owner", version, 2 * kMiB, at));
  }
}

// A process that ends with the test, however that ends.
class Child {
 public:
  explicit Child(const std::function<void()>& work)
      : pid_(in_child([&] {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          try {
            work();
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
          }
        })) {}
  ~Child() {
    if (pid_ != 0) kill();
  }
  Child(const Child&) = delete;
  void kill() {
    ::kill(pid_, SIGKILL);
    status();
  }
  bool well() { return status() == 0; }

 private:
  int status() { return status_of(std::exchange(pid_, 0)); }
  pid_t pid_;
};

TEST(PoolLeasesKilled, whoever_is_killed_while_a_share_is_recalled_the_others_go_on_and_nothing_is_wrong) {
  for (std::uint32_t seed = 0; seed < (long_form() ? 60u : 6u); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Place place;
    Steps ready, borrowed, go, end;
    Child agent([&] { serve(place, ready, end); });
    Child borrower([&] { borrow(place, ready, borrowed, end); });
    Child owner([&] { need(place, ready, go); });
    while (!borrowed.told(10)) {
    }
    Child& victim = *std::array{&agent, &borrower, &owner}[seed % 3];
    const auto moment = std::chrono::microseconds(random() % 30'000);
    if (random() % 4 != 0) go.tell();  // else it is killed while it lends and borrows
    std::this_thread::sleep_for(moment);
    victim.kill();
    go.tell();
    if (&victim != &owner) {
      EXPECT_TRUE(owner.well()) << "who needs its share has it";
    }
    const std::uint64_t rank = &victim == &owner ? 2 : 3;
    {
      Rank next(place, rank, 4, kPool);
      ASSERT_FALSE(next.error()) << next.error()->message;
      next.await_persisted(next.write("next", 1, (kShare - 1) * kMiB));
    }
    end.tell();
    for (Child* const child : {&agent, &borrower}) EXPECT_TRUE(child == &victim || child->well());
    EXPECT_EQ(place.pools(), std::vector<std::string>{});
    for (std::uint64_t one = 0; one < 4; ++one) {
      Rank again(place, one, 4, kPool);
      ASSERT_FALSE(again.error()) << again.error()->message;
      const auto found = again.found();  // each has the bytes of its version
      EXPECT_EQ(one == rank, found.contains({"next", 1}));
      for (Version version = 1; version < 8 && one == 2 && &victim != &owner; ++version)
        EXPECT_TRUE(found.contains({"owner", version})) << version;
    }
  }
}

PoolBorrower::Leases of_share(std::uint32_t share, PoolBorrower::Leases leases) {
  std::erase_if(leases, [&](std::uint32_t lease) { return lease / kShare != share; });
  return leases;
}

// The next agent has admitted the borrower, and says what is lent, while the borrower returns it: to the one before, as
// far as it knows.
TEST(PoolLeasesKilled, what_is_returned_before_the_next_agent_is_heard_stays_with_its_borrower_until_it_has_heard) {
  const Place place;
  Steps ready, end;
  Child agent([&] { serve(place, ready, end); });
  while (!ready.told(10)) {
  }
  Rank borrower(place, 1, 4, kPool), owner(place, 2, 4, kPool);
  ASSERT_FALSE(borrower.error() || owner.error());
  PoolBorrower told;
  told.borrow_all(borrower, kShare);
  while (of_share(2, told.lent()).empty()) told.produce(borrower);
  std::atomic<bool> whole{false};
  std::thread needs([&] {
    owner.storage().memory().claim((kShare - 1) * kMiB).value();
    whole = true;
  });
  while (of_share(2, told.lent()) != of_share(2, told.recalled())) std::this_thread::yield();
  const auto recalled = of_share(2, told.recalled());

  // What becomes of an object of which the agent had a part is known before anything of the next agent is heard.
  constexpr ObjectId kInPart = storage::kFirstObject + 1'000'000;
  constexpr storage::Token kPart = 1'000'000;
  storage::Description description{"in part", 1, {}};
  description.info.bytes = 2 * kMiB;
  description.info.regions = {{0, 2 * kMiB, 0}};
  std::vector<std::byte> part(kMiB);
  borrower.storage().begin(kInPart, std::make_shared<const storage::Description>(description)).value();
  borrower.storage().put(kPart, kInPart, 2 * kMiB, 0, part.data(), part.size()).value();
  EXPECT_EQ(borrower.await_transfer(kPart), "ok");
  borrower.before_next_outcome([&] { told.return_recalled(borrower); });
  agent.kill();
  EXPECT_EQ(borrower.await_outcome(kInPart), "the agent ended while the checkpoint was handed over");

  while (of_share(2, told.recalled()) != recalled) std::this_thread::yield();  // it is told of them again
  for (int looks = 0; looks < 2; ++looks) told.produce(borrower);  // by then the next agent has heard the first returns
  const PoolFile pool = PoolFile::open(place.seams().memory->open(pool_name("job-test")).value()).value();
  for (const std::uint32_t lease : recalled) {
    const auto slab = pool.tables().slab(lease);
    EXPECT_TRUE(slab && slab->state == SlabState::recalled && slab->owner.slot == 1)
        << "slab " << lease << " is its owner's, and was lent to the borrower anew";
  }
  while (!whole) told.return_recalled(borrower);
  needs.join();
}

}  // namespace
}  // namespace ebb::share
