// A pool whose processes were all killed is finished once, whatever goes wrong on the way there.
#include "share/agent/dead_pools.hpp"

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "share/agent/agent.hpp"
#include "share/agent/drain.hpp"
#include "share/node_turn.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using storage::ObjectId;
using test::in_child;
using test::kChunk;
using test::kMiB;
using test::Place;
using test::Rank;
using test::status_of;

constexpr Version kVersions = 6;

// A process that hands over, and is killed before its agent, a thread of it, can write any of it.
void leave_a_dead_pool(const Place& place) {
  const pid_t child = in_child([&] {
    os::PosixFiles posix;
    FaultyFiles files(posix, 1);
    Rank rank(place, 0, 1, 16 * kMiB, "job-test", &files);
    rank.storage().memory().claim(kVersions * 2 * kMiB).value();  // a held agent answers nothing
    files.hold(FileCall::write);
    for (Version version = 0; version < kVersions; ++version)
      rank.write("a", version, 2 * kMiB, static_cast<std::uint64_t>(version) * 2 * kMiB);
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status_of(child)));
  ASSERT_EQ(place.pools().size(), 1u);
}

TEST(DeadPools, what_cannot_be_written_stays_in_the_pool_until_it_can) {
  for (const int error : {ENOSPC, EIO}) {
    const Place place;
    leave_a_dead_pool(place);
    os::PosixFiles posix;
    os::SteadyClock clock;
    FaultyFiles files(posix, 1);
    files.fail_nth(FileCall::write, 4, error, FaultyFiles::kEver - 10);
    const auto refused = drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, error == EIO ? Errc::io_error : Errc::no_space) << refused.error().message;
    EXPECT_EQ(place.pools().size(), 1u);
    files.clear_faults();
    const auto drained = drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {});
    ASSERT_TRUE(drained) << drained.error().message;
    EXPECT_TRUE(drained->removed);
    EXPECT_EQ(place.pools().size(), 0u);
    Rank next(place, 0, 1, 16 * kMiB);
    EXPECT_EQ(next.found().size(), static_cast<std::size_t>(kVersions));
  }
}

TEST(DeadPools, whichever_sync_fails_nothing_of_it_is_lost) {
  bool failed = true;
  for (std::uint64_t nth = 1; failed; ++nth) {
    const Place place;
    leave_a_dead_pool(place);
    os::PosixFiles posix;
    os::SteadyClock clock;
    FaultyFiles files(posix, 1);
    files.fail_nth(FileCall::sync, nth, EIO, FaultyFiles::kEver - nth);
    const auto first = drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {});
    failed = files.count(FileCall::sync) >= nth;
    EXPECT_EQ(place.pools().size(), first ? 0u : 1u);
    files.clear_faults();
    if (!first) {
      const auto drained = drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {});
      ASSERT_TRUE(drained) << drained.error().message;
    }
    Rank next(place, 0, 1, 16 * kMiB);
    EXPECT_EQ(next.found().size(), static_cast<std::size_t>(kVersions)) << "sync " << nth;
  }
}

// Once it is closed, no sync returns until it is broken, and all fail from then on.
class SyncGate final : public doubles::ForwardFiles<SyncGate> {
 public:
  using ForwardFiles::ForwardFiles;
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }
  std::atomic<bool> closed{false}, broken{false};

 private:
  friend ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    if (call.call != FileCall::sync || !closed) return whole();
    while (!broken) std::this_thread::yield();
    return os::SysResult::failed(EIO);
  }
};

TEST(DeadPools, a_drain_beside_living_processes_fails_if_what_they_handed_over_is_lost) {
  const Place place;
  os::PosixFiles posix;
  os::SteadyClock clock;
  SyncGate files(posix);
  Rank rank(place, 0, 1, 16 * kMiB, "job-test", &files);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  rank.await_persisted(rank.write("a", 0, 2 * kMiB));
  files.closed = true;
  const ObjectId object = rank.write("a", 1, 2 * kMiB, 4 * kMiB);
  EXPECT_EQ(rank.await_last_transfer(), "ok") << "its memory is free without a sync";
  const auto drained = drain_pool(place.seams(), posix, clock, "job-test", std::chrono::seconds(60), [&] {
    files.broken = true;
    return true;
  });
  EXPECT_NE(rank.await_outcome(object), "ok");
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code, Errc::io_error) << drained.error().message;
}

TEST(DeadPools, a_pool_whose_creator_was_killed_is_removed) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 20}) {
    const Place place;
    const std::filesystem::path file = place.shared() / "job-test.pool";
    std::ofstream(file).close();
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::resize_file(file, bytes);
    os::PosixFiles files;
    os::SteadyClock clock;
    const auto drained = drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {});
    ASSERT_TRUE(drained) << drained.error().message;
    EXPECT_TRUE(drained->removed);
    EXPECT_EQ(place.pools().size(), 0u);
  }
}

TEST(DeadPools, a_dead_pool_takes_the_name_of_its_agent_with_it) {
  const Place place;
  leave_a_dead_pool(place);
  EXPECT_TRUE(std::filesystem::exists(place.shared() / socket_name("job-test")));
  os::PosixFiles files;
  os::SteadyClock clock;
  ASSERT_TRUE(drain_pool(place.seams(), files, clock, "job-test", std::chrono::seconds(60), {}));
  EXPECT_FALSE(std::filesystem::exists(place.shared() / socket_name("job-test")));
}

TEST(DeadPools, a_pool_that_is_in_use_is_left_alone) {
  const Place place;
  Rank rank(place, 0, 1, 16 * kMiB);
  os::PosixFiles files;
  os::SteadyClock clock;
  NodeTurn turn(place.seams());
  ASSERT_TRUE(turn.wait(clock));
  const auto finished = finish_if_dead(place.seams(), files, clock, "job-test.pool");
  ASSERT_TRUE(finished) << finished.error().message;
  EXPECT_FALSE(*finished);
  EXPECT_EQ(place.pools().size(), 1u);
}

TEST(DeadPools, an_agent_whose_pool_was_removed_ends_and_leaves_its_name_to_the_next) {
  const Place place;
  const NodeSeams seams = place.seams();
  os::PosixFiles files;
  os::SteadyClock clock;
  storage::PersistentOptions store;
  store.directory = place.directory();
  store.capacity = 64 * kMiB;
  const PoolHeader header{choose_shape(8 * kMiB, kChunk, 1).value(), "job-test", pool_store(store)};
  const auto made = [&] { return PoolFile::create(seams.memory->create("job-test.pool").value(), header).value(); };
  for (const bool before : {true, false}) {
    Agent agent(seams, files, clock, made(), seams.sockets->listen(socket_name("job-test")).value(), false);
    const auto replace = [&] {
      seams.memory->remove("job-test.pool").value();
      static_cast<void>(made());
    };
    if (before) replace();
    std::thread running([&] { EXPECT_TRUE(agent.run()); });
    if (!before) replace();
    running.join();
    EXPECT_TRUE(seams.sockets->listen(socket_name("job-test"))) << "nobody listens there any more";
    EXPECT_EQ(place.pools().size(), 1u);
    seams.memory->remove("job-test.pool").value();
  }
}

}  // namespace
}  // namespace ebb::share
