// Processes of a pool that are killed: what they handed over is written.
#include <atomic>
#include <chrono>
#include <deque>
#include <gtest/gtest.h>
#include <malloc.h>
#include <memory>
#include <signal.h>
#include <thread>

#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/forward_files.hpp"
#include "tests/os/few_threads.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using test::in_child;
using test::kMiB;
using test::LaterChild;
using test::Place;
using test::Rank;
using test::status_of;

// Files that sync nothing any more, once they are told so: what was written stays between "written" and "synced".
class NoSyncs final : public doubles::ForwardFiles<NoSyncs> {
 public:
  explicit NoSyncs(os::Files& inner) : ForwardFiles(inner) {}
  void hold() { held_ = true; }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }

 private:
  friend ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    while (held_ && call.call == doubles::FileCall::sync) ::pause();
    return whole();
  }
  std::atomic<bool> held_{false};
};

// The process of rank 0 of 2, of which one object is durable, and nothing will be from now on.
pid_t agent_without_syncs(const Place& place) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t agent = in_child([&] {
    os::PosixFiles posix;
    NoSyncs files(posix);
    Rank rank(place, 0, 2, 32 * kMiB, "job-test", &files);
    rank.await_persisted(rank.write("first", 1, kMiB));
    files.hold();
    EXPECT_EQ(::write(ready[1], "x", 1), 1);
    ::pause();
  });
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  return agent;
}

TEST(NodeStorageKilled, what_a_killed_agent_had_written_and_not_synced_is_there_though_its_memory_was_used_again) {
  const Place place;
  const pid_t agent = agent_without_syncs(place);
  {
    Rank rank(place, 1, 2, 32 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    std::vector<ObjectId> objects;
    for (Version version = 0; version < 12; ++version) {  // twice its share
      const std::uint64_t at = static_cast<std::uint64_t>(version) % 4 * 3 * kMiB;
      objects.push_back(rank.write("second", version, 3 * kMiB, at));
      EXPECT_EQ(rank.await_last_transfer(), "ok") << "its memory is free without a sync";
    }
    std::vector<std::byte> memory(20 * kMiB + os::kBlock);
    void* aligned = memory.data();
    std::size_t space = memory.size();
    objects.push_back(rank.write_from(static_cast<std::byte*>(std::align(os::kBlock, 20 * kMiB, aligned, space)),
                                      "large", 0, 20 * kMiB));
    EXPECT_EQ(rank.await_last_transfer(), "ok") << "in pieces, larger than the share";
    while (!rank.listed(objects.back())) std::this_thread::yield();
    rank.storage().drop(objects.at(0));
    rank.storage().commit();
    EXPECT_EQ(rank.ended(), std::vector<ObjectId>{}) << "nothing is durable";
    ::kill(agent, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(agent)));
    for (std::size_t n = 1; n < objects.size(); ++n) rank.await_persisted(objects[n]);
    for (Version version = 1; version < 12; ++version)
      EXPECT_TRUE(rank.read(objects.at(static_cast<std::size_t>(version)), "second", version, 3 * kMiB));
    EXPECT_TRUE(rank.read(objects.back(), "large", 0, 20 * kMiB));
    while (rank.storage().drops_done() < 1) std::this_thread::yield();
  }
  Rank again(place, 1, 2, 32 * kMiB);
  const auto found = again.found();
  EXPECT_EQ(found.size(), 12u);
  EXPECT_FALSE(found.contains({"second", 0})) << "it was dropped before anybody had said that it is durable";
}

TEST(NodeStorageKilled, all_are_killed_before_a_sync_and_the_next_start_or_a_drain_has_what_was_written) {
  const Place place;
  const pid_t child = in_child([&] {
    os::PosixFiles posix;
    NoSyncs files(posix);
    Rank rank(place, 0, 1, 16 * kMiB, "job-test", &files);
    files.hold();
    for (Version version = 0; version < 9; ++version) {
      rank.write("a", version, 2 * kMiB, static_cast<std::uint64_t>(version) % 3 * 2 * kMiB);
      rank.await_last_transfer();
    }
    ::raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
  Rank next(place, 0, 1, 16 * kMiB);
  ASSERT_FALSE(next.error()) << next.error()->message;
  EXPECT_EQ(next.found().size(), 9u);
}

TEST(NodeStorageKilled, a_read_of_what_is_written_fails_with_the_reason_when_no_agent_can_be_had) {
  const Place place;
  const pid_t agent = agent_without_syncs(place);
  Rank rank(place, 1, 2, 32 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const ObjectId object = rank.write("second", 1, kMiB);
  EXPECT_EQ(rank.await_last_transfer(), "ok") << "it is written";
  std::vector<std::byte> memory(kMiB);
  constexpr storage::Token kBefore = 1000, kAfter = 1001;
  EXPECT_TRUE(rank.storage().get(kBefore, object, 0, memory.data(), memory.size()));
  std::filesystem::remove(place.shared() / pool_name("job-test"));  // no agent can follow
  ::kill(agent, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(agent)));
  const std::string why = rank.await_transfer(kBefore);
  EXPECT_NE(why.find("the node's pool cannot be used any more"), std::string::npos) << why;
  const auto later = rank.storage().get(kAfter, object, 0, memory.data(), memory.size());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message, why);
}

TEST(NodeStorageKilled, what_a_killed_process_handed_over_is_written_and_its_share_is_free) {
  const Place place;
  std::deque<LaterChild> children;
  for (int round = 0; round < 3; ++round) {
    children.emplace_back([&, round] {
      Rank rank(place, 1, 2, 16 * kMiB);
      const ObjectId object = rank.write("a", round, 3 * kMiB);
      if (!rank.listed(object)) ::_exit(2);
      ::raise(SIGKILL);
    });
  }
  Rank watcher(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(watcher.error()) << watcher.error()->message;
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(WIFSIGNALED(status_of(children[static_cast<std::size_t>(round)].begin())));
    Rank next(place, 1, 2, 16 * kMiB);
    ASSERT_FALSE(next.error()) << next.error()->message;
    std::optional<ObjectId> found;
    for (const storage::Found& one : next.storage().found())
      if (one.history == "a" && one.version == round) found = one.object;
    ASSERT_TRUE(found);
    EXPECT_TRUE(next.read(*found, "a", round, 3 * kMiB));
  }
}

TEST(NodeStorageKilled, what_a_killed_process_had_dropped_is_gone_when_the_next_one_looks) {
  const Place place;
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  LaterChild child([&] {
    Rank rank(place, 1, 2, 16 * kMiB);
    const ObjectId object = rank.write("a", 1, kMiB);
    rank.await_persisted(object);
    char byte = 0;
    if (::write(ready[1], "x", 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(2);
    rank.storage().drop(object);
    rank.storage().memory().claim(4 * kMiB).value();  // is answered after what was said before
    ::raise(SIGKILL);
  });
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  Rank watcher(place, 0, 2, 16 * kMiB, "job-test", &files);
  ASSERT_FALSE(watcher.error()) << watcher.error()->message;
  const pid_t killed = child.begin();
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  files.hold(doubles::FileCall::write);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  EXPECT_TRUE(WIFSIGNALED(status_of(killed)));
  std::atomic<bool> open{false};
  const std::jthread releases([&] {
    for (int n = 0; n < 200 && !open; ++n) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    files.release(doubles::FileCall::write);
  });
  Rank next(place, 1, 2, 16 * kMiB);
  open = true;
  ASSERT_FALSE(next.error()) << next.error()->message;
  EXPECT_TRUE(next.found().empty()) << "it would be gone a moment later";
}

TEST(NodeStorageKilled, all_of_a_job_are_killed_and_the_next_start_finishes_its_list_in_its_own_store) {
  const Place place, other;
  const pid_t child = in_child([&] {
    Rank rank(place, 0, 1, 16 * kMiB);
    for (Version version = 0; version < 6; ++version)
      rank.write("a", version, 2 * kMiB, static_cast<std::uint64_t>(version) * 2 * kMiB);
    ::raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
  EXPECT_EQ(place.pools().size(), 1u);
  NodeSeams seams = place.seams();
  Rank next(place, 0, 1, 8 * kMiB);  // another budget: the dead job's pool is gone by then
  ASSERT_FALSE(next.error()) << next.error()->message;
  EXPECT_EQ(next.storage().found().size(), 6u);
  for (const storage::Found& one : next.storage().found())
    EXPECT_TRUE(next.read(one.object, "a", one.version, 2 * kMiB));
}

TEST(NodeStorageKilled, an_agent_that_is_killed_is_replaced_and_nothing_is_lost) {
  const Place place;
  // The first process has the agent in a thread of its own; both die together.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t agent = in_child([&] {
    Rank rank(place, 0, 2, 32 * kMiB);
    rank.write("first", 1, 2 * kMiB);
    EXPECT_EQ(::write(ready[1], "x", 1), 1);
    ::pause();
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  {
    Rank rank(place, 1, 2, 32 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    std::vector<ObjectId> objects;
    for (Version version = 0; version < 7; ++version) {
      objects.push_back(rank.write("second", version, 2 * kMiB, static_cast<std::uint64_t>(version) * 2 * kMiB));
      if (version == 3) ::kill(agent, SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(status_of(agent)));
    for (const ObjectId object : objects) rank.await_persisted(object);
    for (Version version = 0; version < 7; ++version)
      EXPECT_TRUE(rank.read(objects.at(static_cast<std::size_t>(version)), "second", version, 2 * kMiB));
    EXPECT_GE(rank.storage().counters().agents, 2u);
  }
  EXPECT_EQ(place.pools(), std::vector<std::string>{});
  Rank again(place, 0, 2, 32 * kMiB);
  ASSERT_EQ(again.storage().found().size(), 1u);
  EXPECT_TRUE(again.read(again.storage().found().front().object, "first", 1, 2 * kMiB));
}

// The system may have threads for it later.
TEST(NodeStorageKilled, an_agent_that_is_killed_is_replaced_once_there_are_threads_for_the_next_one) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);  // an arena for each thread would want addresses too
  for (const std::size_t threads : {0, 1, 2, 3}) {
    const Place place;
    const pid_t agent = agent_without_syncs(place);
    Rank rank(place, 1, 2, 32 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    const ObjectId object = rank.write("second", 1, kMiB);
    {
      const FewThreads few(threads);
      ::kill(agent, SIGKILL);
      EXPECT_TRUE(WIFSIGNALED(status_of(agent)));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it asks for an agent, or does so later
    }
    rank.await_persisted(object);
    EXPECT_TRUE(rank.read(object, "second", 1, kMiB)) << threads;
  }
}

struct FastClock final : os::Clock {
  os::SteadyClock steady;
  std::int64_t now() const noexcept override { return 100 * steady.now(); }
};

TEST(NodeStorageKilled, an_agent_that_cannot_be_replaced_for_want_of_threads_is_not_awaited_for_ever) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);
  const Place place;
  FastClock clock;
  const pid_t agent = agent_without_syncs(place);
  Rank rank(place, 1, 2, 32 * kMiB, "job-test", nullptr, {}, &clock);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const ObjectId object = rank.write("second", 1, kMiB);
  const FewThreads none(0);
  ::kill(agent, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(agent)));
  EXPECT_NE(rank.await_delayed(object).find("a thread cannot be started"), std::string::npos);
}

}  // namespace
}  // namespace ebb::share
