// Processes of a pool that are killed: what they handed over is written.
#include <deque>
#include <gtest/gtest.h>
#include <signal.h>

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

}  // namespace
}  // namespace ebb::share
