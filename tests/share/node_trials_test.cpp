// Processes of a pool that are stopped, forked, killed or hostile, and disks that fail: what was handed over is exact.
#include <atomic>
#include <cstdlib>
#include <deque>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>

#include "tests/doubles/faulty_files.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using storage::ObjectId;
using test::in_child;
using test::kMiB;
using test::LaterChild;
using test::Place;
using test::Rank;
using test::status_of;

int rounds() { return std::getenv("EBB_LONG") ? 1000 : 20; }

// Words that a process and its children share.
struct Board {
  std::atomic<Version> listed[2] = {-1, -1};  // the newest version that a rank has handed over
  std::atomic<bool> stop = false;
  std::atomic<int> step = 0;
};

class SharedBoard {
 public:
  SharedBoard()
      : board_(new(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board) {}
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  Board* operator->() const { return board_; }

 private:
  Board* const board_;
};

template <class Condition>
void await(const Condition& condition) {
  while (!condition()) std::this_thread::yield();
}

std::uint64_t size_of(std::uint64_t rank, Version version) {
  return (static_cast<std::uint64_t>(version) * 7919 + rank * 104729) % (300 << 10) + 1;
}

// Writes one version after the other, each over the memory of one that is durable, until the board says stop.
void produce(const Place& place, std::uint64_t number, const SharedBoard& board) {
  Rank rank(place, number, 2, 16 * kMiB);
  if (rank.error()) ::_exit(3);
  constexpr std::size_t kPlaces = 8;
  std::vector<ObjectId> objects;
  for (Version version = 0; !board->stop; ++version) {
    if (objects.size() >= kPlaces) rank.await_persisted(objects[objects.size() - kPlaces]);
    const std::uint64_t at = objects.size() % kPlaces * (512 << 10);
    objects.push_back(rank.write("a", version, size_of(number, version), at));
    if (rank.listed(objects.back())) board->listed[number] = version;
  }
  for (const ObjectId object : objects) rank.await_persisted(object);
}

// What a rank finds is exact, and nothing that it had handed over is missing.
void expect_all_found(const Place& place, std::uint64_t number, Version listed) {
  Rank rank(place, number, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const auto found = rank.found();
  for (Version version = 0; version <= listed; ++version) {
    const auto one = found.find({"a", version});
    ASSERT_NE(one, found.end()) << "rank " << number << " version " << version << " of " << listed;
    EXPECT_EQ(one->second, size_of(number, version));
  }
}

TEST(NodeTrialsKilled, at_any_moment_every_version_is_exact_or_absent_and_none_that_was_listed_is_lost) {
  std::mt19937_64 random(19);
  for (int round = 0; round < rounds(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const Place place;
    const SharedBoard board;
    pid_t children[2];
    for (std::uint64_t number : {0, 1}) children[number] = in_child([&] { produce(place, number, board); });
    await([&] { return board->listed[0] >= 0 && board->listed[1] >= 0; });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    const std::uint64_t victim = random() % 2;
    const bool both = random() % 4 == 0;
    ::kill(children[victim], SIGKILL);
    if (both) ::kill(children[1 - victim], SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(children[victim])));
    if (!both) {  // it goes on, as the agent if that was killed
      const Version before = board->listed[1 - victim];
      await([&] { return board->listed[1 - victim] > before + 4; });
      board->stop = true;
    }
    EXPECT_EQ(status_of(children[1 - victim]), both ? SIGKILL : 0);
    if (both) {  // so is the one that finishes what they left
      const pid_t next = in_child([&] { const Rank rank(place, 0, 2, 16 * kMiB); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      ::kill(next, SIGKILL);
      status_of(next);
    }
    for (const std::uint64_t number : {0, 1}) expect_all_found(place, number, board->listed[number]);
    EXPECT_EQ(place.pools(), std::vector<std::string>{});
  }
}

TEST(NodeTrialsKilled, a_process_that_is_stopped_holds_up_no_other_and_loses_nothing) {
  const Place place;
  const SharedBoard board;
  LaterChild produces([&] { produce(place, 1, board); });
  {
    Rank agent(place, 0, 2, 16 * kMiB);
    ASSERT_FALSE(agent.error()) << agent.error()->message;
    const pid_t child = produces.begin();
    await([&] { return board->listed[1] > 3; });
    ::kill(child, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    for (Version version = 0; version < 20; ++version) agent.await_persisted(agent.write("b", version, 100'000));
    ::kill(child, SIGCONT);
    const Version before = board->listed[1];
    await([&] { return board->listed[1] > before + 4; });
    board->stop = true;
    EXPECT_EQ(status_of(child), 0);
  }
  expect_all_found(place, 1, board->listed[1]);
  Rank agent(place, 0, 2, 16 * kMiB);
  EXPECT_EQ(agent.found().size(), 20u);
}

TEST(NodeTrialsKilled, while_the_agent_is_stopped_checkpoints_are_handed_over_and_written_later) {
  const Place place;
  const SharedBoard board;
  const pid_t child = in_child([&] { produce(place, 0, board); });
  await([&] { return board->listed[0] >= 0; });
  Rank rank(place, 1, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  rank.await_persisted(rank.write("a", 0, kMiB, 5 * kMiB));  // all the memory that is used below
  ::kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  std::vector<ObjectId> objects;
  for (Version version = 1; version <= 5; ++version) {
    objects.push_back(rank.write("a", version, kMiB, static_cast<std::uint64_t>(version - 1) * kMiB));
    EXPECT_TRUE(rank.listed(objects.back()));
  }
  EXPECT_EQ(rank.storage().counters().objects_written, 1u);
  ::kill(child, SIGCONT);
  for (const ObjectId object : objects) rank.await_persisted(object);
  EXPECT_EQ(rank.storage().counters().agents, 1u);
  for (Version version = 1; version <= 5; ++version) {
    EXPECT_TRUE(rank.read(objects.at(static_cast<std::size_t>(version - 1)), "a", version, kMiB));
  }
  board->stop = true;
  EXPECT_EQ(status_of(child), 0);
}

TEST(NodeTrialsKilled, two_jobs_beside_each_other_never_meet) {
  const Place place;
  const SharedBoard board;
  const auto join = [&](const std::string& job) {
    return std::make_unique<Rank>(place, 0, 1, 8 * kMiB, job, nullptr, place.directory_of(job));
  };
  const pid_t child = in_child([&] {
    auto rank = join("job-a");
    for (Version version = 0; version < 4; ++version) {
      const ObjectId object = rank->write("a", version, kMiB, static_cast<std::uint64_t>(version) * kMiB);
      if (!rank->listed(object)) ::_exit(2);
    }
    board->step = 1;
    ::pause();
  });
  await([&] { return board->step == 1; });
  {
    auto beside = join("job-b");
    ASSERT_FALSE(beside->error()) << beside->error()->message;
    EXPECT_EQ(beside->found().size(), 0u);
    beside->await_persisted(beside->write("b", 0, kMiB));
    EXPECT_EQ(place.pools().size(), 2u);
    ::kill(child, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(child)));
    auto later = join("job-c");  // finishes what the dead job left, in that job's own store
    ASSERT_FALSE(later->error()) << later->error()->message;
    EXPECT_EQ(later->found().size(), 0u);
    EXPECT_EQ(place.pools().size(), 2u);
  }
  EXPECT_EQ(place.pools(), std::vector<std::string>{});
  EXPECT_EQ(join("job-a")->found().size(), 4u);
  EXPECT_EQ(join("job-b")->found().size(), 1u);
  EXPECT_EQ(join("job-c")->found().size(), 0u);
}

TEST(NodeTrialsKilled, a_forked_child_has_no_slab_and_outlives_its_parent_without_harm) {
  const Place place;
  const SharedBoard board;
  LaterChild parent([&] {
    Rank rank(place, 1, 2, 16 * kMiB);
    rank.await_persisted(rank.write("a", 0, kMiB));
    const pid_t touches = in_child([&] {
      ::signal(SIGSEGV, SIG_DFL);
      *const_cast<volatile std::byte*>(rank.memory()) = std::byte{1};
    });
    const int touched = status_of(touches);
    if (!WIFSIGNALED(touched) || WTERMSIG(touched) != SIGSEGV) ::_exit(2);
    in_child([&] {
      board->step = 1;
      await([&] { return board->step == 2; });
      board->step = 3;
    });
    await([&] { return board->step == 1; });
    if (!rank.listed(rank.write("a", 1, 3 * kMiB))) ::_exit(4);
    ::raise(SIGKILL);
  });
  Rank watcher(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(watcher.error()) << watcher.error()->message;
  const int status = status_of(parent.begin());
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  {  // the child lives, and has copies of what is copied by fork
    Rank next(place, 1, 2, 16 * kMiB);
    ASSERT_FALSE(next.error()) << next.error()->message;
    EXPECT_EQ(next.found().size(), 2u);
  }
  EXPECT_EQ(board->step, 1);
  board->step = 2;
  await([&] { return board->step == 3; });
}

TEST(NodeTrialsKilled, a_forked_child_of_the_agent_does_not_keep_the_next_one_out) {
  const Place place;
  const SharedBoard board;
  const pid_t agent = in_child([&] {
    Rank rank(place, 0, 2, 16 * kMiB);
    in_child([&] {
      board->step = 1;
      await([&] { return board->step == 2; });
      board->step = 3;
    });
    rank.write("a", 0, kMiB);
    ::pause();
  });
  await([&] { return board->step == 1; });
  {
    Rank rank(place, 1, 2, 16 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    ::kill(agent, SIGKILL);
    status_of(agent);
    rank.await_persisted(rank.write("a", 0, kMiB));
    EXPECT_EQ(rank.storage().counters().agents, 2u);
  }
  board->step = 2;
  await([&] { return board->step == 3; });
}

// --- disks -----------------------------------------------------------------------------------------------------------

TEST(NodeTrials, a_disk_that_is_full_or_broken_is_named_and_loses_nothing_older) {
  for (const auto& [call, error, word] :
       {std::tuple(FileCall::write, ENOSPC, "No space left"), std::tuple(FileCall::write, EDQUOT, "quota"),
        std::tuple(FileCall::write, EIO, "Input/output error")}) {
    SCOPED_TRACE(word);
    const Place place;
    os::PosixFiles posix;
    FaultyFiles files(posix, 1);
    {
      Rank rank(place, 0, 1, 16 * kMiB, "job-test", &files);
      ASSERT_FALSE(rank.error()) << rank.error()->message;
      const ObjectId old = rank.write("a", 0, 3 * kMiB);
      rank.await_persisted(old);
      files.fail_at_rate(call, 1.0, error);
      const ObjectId refused = rank.write("a", 1, kMiB / 2, 4 * kMiB);
      const std::string said = rank.await_delayed(refused);
      EXPECT_NE(said.find(word), std::string::npos) << said;
      files.clear_faults();
      const ObjectId next = rank.write("a", 2, kMiB / 2, 6 * kMiB);
      rank.await_persisted(next);
      rank.await_persisted(refused);
      EXPECT_TRUE(rank.read(old, "a", 0, 3 * kMiB));
      EXPECT_TRUE(rank.read(next, "a", 2, kMiB / 2));
    }
    Rank again(place, 0, 1, 16 * kMiB);
    ASSERT_FALSE(again.error()) << again.error()->message;
    const auto found = again.found();
    EXPECT_TRUE(found.contains({"a", 0}) && found.contains({"a", 1}) && found.contains({"a", 2}));
  }
}

TEST(NodeTrialsKilled, what_a_killed_process_left_stays_in_the_pool_while_the_disk_is_full) {
  const Place place;
  LaterChild child([&] {
    Rank rank(place, 1, 2, 16 * kMiB);
    const ObjectId object = rank.write("a", 1, kMiB);
    rank.await_delayed(object);
    ::raise(SIGKILL);
  });
  {
    os::PosixFiles posix;
    FaultyFiles files(posix, 1);
    Rank agent(place, 0, 2, 16 * kMiB, "job-test", &files);
    ASSERT_FALSE(agent.error()) << agent.error()->message;
    agent.await_persisted(agent.write("b", 0, kMiB));
    files.fail_at_rate(FileCall::write, 1.0, ENOSPC);
    EXPECT_TRUE(WIFSIGNALED(status_of(child.begin())));
    {
      const Rank next(place, 1, 2, 16 * kMiB);
      ASSERT_TRUE(next.error());
      EXPECT_EQ(next.error()->code, Errc::no_space) << next.error()->message;
    }
    files.clear_faults();
    agent.await_persisted(agent.write("b", 1, kMiB, 2 * kMiB));
    const auto admitted = [&] { return !Rank(place, 1, 2, 16 * kMiB).error(); };
    await([&] { return admitted(); });
  }
  Rank again(place, 1, 2, 16 * kMiB);
  ASSERT_FALSE(again.error()) << again.error()->message;
  EXPECT_TRUE(again.found().contains({"a", 1}));
}

TEST(NodeTrialsKilled, the_next_agent_cannot_open_the_store_and_the_list_is_kept_for_one_that_can) {
  const Place place;
  const SharedBoard board;
  const pid_t agent = in_child([&] {
    Rank rank(place, 0, 2, 16 * kMiB);
    board->step = 1;
    ::pause();
  });
  await([&] { return board->step == 1; });
  const pid_t child = in_child([&] {
    ::alarm(30);
    os::PosixFiles posix;
    FaultyFiles files(posix, 1);
    Rank rank(place, 1, 2, 16 * kMiB, "job-test", &files);
    rank.await_persisted(rank.write("a", 0, kMiB, 8 * 1024));  // memory for the next one
    files.fail_at_rate(FileCall::lock, 1.0, EIO);
    ::kill(agent, SIGSTOP);
    const ObjectId kept = rank.write("a", 1, kMiB / 4, kMiB / 4), dropped = rank.write("b", 1, kMiB / 4);
    if (!rank.listed(kept) || !rank.listed(dropped)) ::_exit(4);
    ::kill(agent, SIGKILL);
    const std::string said = rank.await_delayed(kept);
    EXPECT_NE(said.find("the node's pool cannot be used any more"), std::string::npos) << said;
    rank.await_delayed(dropped);
    EXPECT_TRUE(rank.listed(kept));
    rank.storage().withdraw(dropped);
    EXPECT_NE(rank.await_last_transfer(), "ok");
    rank.storage().drop(dropped);
    std::memset(rank.memory(), 0, kMiB / 4);
    rank.storage().leave();
    rank.storage().stop();
  });
  EXPECT_EQ(status_of(child), 0) << "it did not end by itself";
  status_of(agent);
  Rank rank(place, 1, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  EXPECT_EQ(rank.found().size(), 2u);
}

// --- what others left ------------------------------------------------------------------------------------------------

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::fchmod(fd, mode);
  ::close(fd);
}

TEST(NodeTrials, planted_links_and_files_in_the_place_of_a_pool_are_refused_and_stay_as_they_are) {
  const std::array<std::byte, 5000> garbage{std::byte{1}, std::byte{2}};
  const auto refused = [](const Place& place) {
    const Rank rank(place, 0, 1, 8 * kMiB);
    EXPECT_TRUE(rank.error());
    return rank.error().value_or(Error{}).code;
  };
  {
    const Place place;
    const auto victim = place.shared() / "victim";
    write_file(victim, garbage, 0600);
    std::filesystem::create_symlink(victim, place.shared() / pool_name("job-test"));
    EXPECT_EQ(refused(place), Errc::not_permitted);
    EXPECT_EQ(std::filesystem::file_size(victim), garbage.size());
  }
  {
    const Place place;
    write_file(place.shared() / pool_name("job-test"), garbage, 0644);
    EXPECT_EQ(refused(place), Errc::not_permitted);
    EXPECT_EQ(std::filesystem::file_size(place.shared() / pool_name("job-test")), garbage.size());
  }
  {
    const Place place;
    std::filesystem::create_directory(place.shared() / pool_name("job-test"));
    EXPECT_NE(refused(place), Errc::ok);
  }
  {
    const Place place;
    ASSERT_EQ(::mkfifo((place.shared() / pool_name("job-test")).c_str(), 0600), 0);
    EXPECT_EQ(refused(place), Errc::not_permitted);
  }
  {
    const Place place;
    write_file(place.shared() / pool_name("job-test"), garbage, 0600);
    EXPECT_EQ(refused(place), Errc::damaged);
    EXPECT_EQ(std::filesystem::file_size(place.shared() / pool_name("job-test")), garbage.size());
  }
  {  // of a creator that was killed
    const Place place;
    write_file(place.shared() / pool_name("job-test"), std::array<std::byte, 5000>{}, 0600);
    Rank rank(place, 0, 1, 8 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    rank.await_persisted(rank.write("a", 0, kMiB));
  }
}

TEST(NodeTrials, a_pool_whose_store_cannot_be_is_left_alone) {
  const PoolStore good{"", 64 * kMiB, 64 << 10, true, true, 0};
  std::vector<PoolStore> stores(6, good);
  stores[0].block_bytes = 0;
  stores[1].block_bytes = 1;
  stores[2].block_bytes = 0x80000000;
  stores[3].capacity = 0;
  stores[4].directory = "relative/\n";
  stores[5].engine = 200;
  for (PoolStore& store : stores) {
    const Place place;
    if (store.directory.empty()) store.directory = place.directory_of("dead").string();
    const PoolHeader header{choose_shape(8 * kMiB, kMiB, 1).value(), "job-dead", store};
    ASSERT_TRUE(PoolFile::create(place.seams().memory->create(pool_name("job-dead")).value(), header));
    Rank rank(place, 0, 1, 8 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    rank.await_persisted(rank.write("a", 0, kMiB));
  }
}

TEST(NodeTrials, a_hostile_pool_of_another_job_is_left_alone_or_finished) {
  std::mt19937_64 random(5);
  for (int round = 0; round < rounds(); ++round) {
    const Place place;
    PoolHeader header{choose_shape(8 * kMiB, kMiB, 1).value(),
                      "job-dead",
                      {place.directory_of("dead").string(), 64 * kMiB, 64 << 10, true, true, 0}};
    {
      auto pool = PoolFile::create(std::move(place.seams().memory->create(pool_name("job-dead")).value()), header);
      ASSERT_TRUE(pool);
    }
    // Words of the tables and of a list, as no agent writes them.
    const int fd = ::open((place.shared() / pool_name("job-dead")).c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    const PoolShape& shape = header.shape;
    for (int n = 0; n < 40; ++n) {
      const std::uint64_t small = random() % 5, large = random();
      const std::uint64_t word = random() % 2 ? small : large;
      const std::uint64_t from = random() % 2 ? os::kBlock : shape.slab_word_at(0);
      const std::uint64_t end = n % 4 == 0 ? shape.tables_end() + shape.list_bytes() : from + 512;
      ASSERT_EQ(::pwrite(fd, &word, 8, static_cast<off_t>(from + random() % ((end - from) / 8) * 8)), 8);
    }
    ::close(fd);
    Rank rank(place, 0, 1, 8 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    rank.await_persisted(rank.write("a", 0, kMiB));
  }
}

}  // namespace
}  // namespace ebb::share
