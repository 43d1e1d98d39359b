// A store whose host cache is in a node's pool, with real processes, shared memory and files.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <malloc.h>
#include <signal.h>
#include <thread>
#include <vector>

#include "child.hpp"
#include "kept_rig.hpp"
#include "os/pin_queue.hpp"
#include "share/node_storage.hpp"
#include "tests/os/few_threads.hpp"

namespace ebb::store {
namespace {

using testing_support::in_a_child;
using testing_support::OwnDirectory;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::size_t kBytes = kMiB + 4096 + 24;

class StoreInAPool : public ::testing::Test {
 protected:
  StoreInAPool() { EXPECT_NE(::mkdtemp(memory_.data()), nullptr); }
  ~StoreInAPool() override {
    std::error_code ignored;
    std::filesystem::remove_all(memory_, ignored);
  }
  Result<Store> open(int rank = 0, int ranks = 1, Options options = {}) {
    const std::vector<std::filesystem::path> folders{memory_};
    options::Seams seams{files_, std::make_shared<os::SteadyClock>(), nullptr};
    seams.node = std::make_shared<const share::NodeSeams>(share::NodeSeams{
        std::make_shared<os::TmpfsSharedMemory>(memory_), std::make_shared<os::UnixSockets>(folders), folders});
    options.device = "cpu";
    options.directory = directory_.path();
    if (!options.device_cache) options.device_cache = 4 * kMiB;
    if (!options.disk) options.disk = 512 * kMiB;
    if (!options.node_pool) options.node_pool = 16 * kMiB;
    if (!options.tuning.node_chunk) options.tuning.node_chunk = kMiB;
    if (!options.durability) options.durability = Durability::node;
    options.tuning.node_agent = false;
    return Engine::open_store(std::move(seams), options,
                              {{"EBBTIDE_JOB", "test"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)},
                               {"OMPI_COMM_WORLD_RANK", std::to_string(rank)}});
  }
  static std::vector<std::uint64_t> bytes_of(Version version, int rank = 0, std::size_t bytes = kBytes) {
    std::vector<std::uint64_t> out(bytes / 8);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = i * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(version) * 31 + static_cast<std::uint64_t>(rank);
    return out;
  }
  static void write(History& history, Version version, int rank = 0, std::size_t bytes = kBytes) {
    const auto field = bytes_of(version, rank, bytes);
    history.checkpoint(version, {{0, field.data(), field.size() * 8}}).value();
  }
  static bool reads(History& history, Version version, int rank = 0, std::size_t bytes = kBytes) {
    std::vector<std::uint64_t> field(bytes / 8);
    const auto read = history.restore(version, {{0, field.data(), field.size() * 8}});
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return field == bytes_of(version, rank, bytes);
  }
  std::string memory_ = "/dev/shm/ebbtide-test-XXXXXX";
  OwnDirectory directory_;
  std::shared_ptr<os::Files> files_ = std::make_shared<os::PosixFiles>();
};

// Those of its agent too, which is a thread of this process.
TEST_F(StoreInAPool, IsRefusedByNameWhereTheSystemHasNoThreadsForIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);  // an arena for each thread would want addresses too
  int refused = 0;
  bool opened = false;
  for (std::size_t threads = 0; threads < 40 && !opened; ++threads) {
    const auto store = [&] {
      const FewThreads few(threads);
      return open();
    }();
    opened = static_cast<bool>(store);
    if (opened) continue;
    ++refused;
    EXPECT_EQ(store.error().code, Errc::out_of_memory) << store.error().message;
    EXPECT_NE(store.error().message.find("a thread cannot be started"), std::string::npos) << store.error().message;
  }
  EXPECT_TRUE(opened);
  EXPECT_GT(refused, 5) << "as many as it has threads, and those of its agent";
}

TEST_F(StoreInAPool, a_history_goes_through_the_pool_to_the_store_and_back) {
  constexpr Version kLast = 60;
  {
    Store store = open().value();
    History history = store.history("forward", Order::reverse);
    for (Version version = 0; version <= kLast; ++version) write(history, version);
    ASSERT_TRUE(store.wait("node")) << store.wait("node").error().message;
    ASSERT_TRUE(history.wait("node"));
    for (Version version = kLast; version >= 0; --version) EXPECT_TRUE(reads(history, version)) << version;
    ASSERT_TRUE(history.wait("storage"));
    const Stats stats = store.stats();
    ASSERT_TRUE(stats.node);
    EXPECT_EQ(stats.node->checkpoints_written, 61u);
    EXPECT_EQ(stats.node->bytes_written, 61 * kBytes);
    EXPECT_GT(stats.node->last_durable_s, 0);
    EXPECT_GT(stats.node->last_blocked_s, 0);
    EXPECT_EQ(stats.failures, 0u);
    store.close().value();
  }
  Store store = open().value();
  History history = store.history("forward");
  EXPECT_EQ(history.latest().value(), kLast);
  for (Version version = 0; version <= kLast; version += 7) EXPECT_TRUE(reads(history, version));
}

TEST_F(StoreInAPool, each_rank_finds_its_versions_in_the_shared_directory_on_another_node) {
  constexpr int kRanks = 2;
  const OwnDirectory shared;
  Options options;
  options.shared = shared.path();
  options.durability = Durability::shared;
  {
    std::vector<Store> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(open(rank, kRanks, options).value());
    for (int rank = 0; rank < kRanks; ++rank) {
      History history = ranks[static_cast<std::size_t>(rank)].history("forward");
      for (Version version = 0; version < 5; ++version) write(history, version, rank);
      const auto sent = history.wait("shared", Seconds(60));
      ASSERT_TRUE(sent) << sent.error().message;
      ASSERT_TRUE(history.drop(4));
      write(history, 4, rank + 10);
      ASSERT_TRUE(history.wait(4, "shared", Seconds(60)));
    }
    for (Store& store : ranks) store.close().value();
  }
  const auto look = [&] {
    std::vector<Store> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(open(rank, kRanks, options).value());
    for (int rank = 0; rank < kRanks; ++rank) {
      History history = ranks[static_cast<std::size_t>(rank)].history("forward");
      EXPECT_EQ(history.versions().value(), (std::vector<Version>{0, 1, 2, 3, 4}));
      EXPECT_EQ(history.latest().value(), 4);
      for (Version version = 0; version < 5; ++version)
        EXPECT_TRUE(reads(history, version, version == 4 ? rank + 10 : rank)) << version << " of rank " << rank;
    }
    for (Store& store : ranks) store.close().value();
  };
  look();
  std::filesystem::remove_all(directory_.path());
  look();
}

// What VELOC, or a user, does to a file counts, though the local directory has what was there before.
TEST_F(StoreInAPool, each_rank_has_its_versions_in_velocs_files) {
  constexpr int kRanks = 2;
  const OwnDirectory shared;
  const auto with_all = [&](const std::function<void(History&, int)>& act) {
    std::vector<Store> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      Options options;
      options.shared = shared.path();
      options.durability = Durability::shared;
      options.veloc_rank = static_cast<std::uint64_t>(rank);
      ranks.push_back(open(rank, kRanks, options).value());
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      History history = ranks[static_cast<std::size_t>(rank)].history("heat");
      act(history, rank);
    }
    for (Store& store : ranks) store.close().value();
  };
  const auto file = [&](int rank, Version version) {
    return shared.path() / ("heat-" + std::to_string(rank) + "-" + std::to_string(version) + ".dat");
  };
  const auto has = [&](const std::vector<Version>& versions) {
    with_all([&](History& history, int rank) {
      EXPECT_EQ(history.versions().value(), versions) << "rank " << rank;
      for (const Version version : versions) EXPECT_TRUE(reads(history, version, rank)) << version << " of " << rank;
    });
  };
  with_all([&](History& history, int rank) {
    for (Version version = 0; version < 4; ++version) write(history, version, rank);
  });
  const auto written = [&](int rank, Version version) {
    std::error_code failed;
    return std::filesystem::last_write_time(file(rank, version), failed);
  };
  const auto first = written(1, 2);
  for (int rank = 0; rank < kRanks; ++rank)
    for (Version version = 0; version < 4; ++version)
      EXPECT_EQ(std::filesystem::file_size(file(rank, version)), 8 + 12 + kBytes / 8 * 8) << version << " of " << rank;
  has({0, 1, 2, 3});
  EXPECT_EQ(written(1, 2), first) << "the same bytes were sent again";
  for (int rank = 0; rank < kRanks; ++rank) std::filesystem::remove(file(rank, 3));
  has({0, 1, 2});
  for (int rank = 0; rank < kRanks; ++rank) {  // as VELOC writes: no mark fits it
    const auto anew = bytes_of(2, rank + 10);
    std::fstream out(file(rank, 2), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(8 + 12);
    out.write(reinterpret_cast<const char*>(anew.data()), static_cast<std::streamsize>(anew.size() * 8));
  }
  with_all([&](History& history, int rank) { EXPECT_TRUE(reads(history, 2, rank + 10)); });
  std::filesystem::remove_all(directory_.path());
  with_all([&](History& history, int rank) {
    EXPECT_EQ(history.versions().value(), (std::vector<Version>{0, 1, 2}));
    EXPECT_TRUE(reads(history, 0, rank));
  });
}

TEST_F(StoreInAPool, a_wait_for_shared_awaits_the_local_disk_of_what_does_not_go_on) {
  const OwnDirectory shared;
  Options options;
  options.shared = shared.path();
  options.durability = Durability::shared;
  options.shared_every = kOnRequest;
  Store store = open(0, 1, options).value();
  History history = store.history("forward");
  for (Version version = 0; version < 20; ++version) {
    const auto field = bytes_of(version);
    const Future written = history.checkpoint(version, {{0, field.data(), field.size() * 8}}).value();
    ASSERT_TRUE(history.wait("shared"));
    EXPECT_TRUE(written.done("storage")) << version;
  }
}

TEST_F(StoreInAPool, a_version_written_again_after_its_file_was_deleted_outlives_a_kill) {
  const OwnDirectory shared;
  const auto file = shared.path() / "heat-0-1.dat";
  const auto open_sending = [&](std::optional<std::uint64_t> every) {
    Options options;
    options.shared = shared.path();
    options.durability = Durability::shared;
    options.veloc_rank = 0;
    options.shared_every = every;
    return open(0, 1, options).value();
  };
  {
    Store store = open_sending({});
    History history = store.history("heat");
    for (Version version = 0; version < 2; ++version) write(history, version);
    store.close().value();
  }
  ASSERT_TRUE(std::filesystem::remove(file));
  EXPECT_EQ(in_a_child([&]() -> int {
              Store store = open_sending(kOnRequest);  // so nothing more is sent
              History history = store.history("heat");
              const bool gone = history.versions().value() == std::vector<Version>{0};
              write(history, 1, 10);
              ::_exit(gone && history.wait(1, "storage") ? 0 : 1);  // it closes nothing
            }),
            0);
  ASSERT_FALSE(std::filesystem::exists(file));
  Store store = open_sending({});
  History history = store.history("heat");
  EXPECT_EQ(history.versions().value(), (std::vector<Version>{0, 1}));
  EXPECT_TRUE(reads(history, 1, 10));
  store.close().value();
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(StoreInAPool, what_closing_at_node_left_is_sent_by_the_next_process) {
  const OwnDirectory shared;
  const auto open_at = [&](std::uint64_t limit) {
    Options options;
    options.shared = shared.path();
    options.durability = Durability::shared;
    options.veloc_rank = 0;
    options.limit_shared = limit;
    return open(0, 1, options).value();
  };
  {
    Store store = open_at(1);  // so all of it is left
    History history = store.history("heat");
    for (Version version = 0; version < 4; ++version) write(history, version);
    const auto refused = store.close({}, Durability::ephemeral);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    store.close({}, Durability::node).value();
  }
  EXPECT_FALSE(std::filesystem::exists(shared.path() / "heat-0-3.dat"));
  open_at(0).close().value();
  for (Version version = 0; version < 4; ++version)
    EXPECT_TRUE(std::filesystem::exists(shared.path() / ("heat-0-" + std::to_string(version) + ".dat"))) << version;
  Store store = open_at(0);
  History history = store.history("heat");
  for (Version version = 0; version < 4; ++version) EXPECT_TRUE(reads(history, version)) << version;
}

TEST_F(StoreInAPool, a_run_that_went_on_elsewhere_is_not_continued_from_what_was_left_behind) {
  const OwnDirectory shared, behind;
  Options options;
  options.shared = shared.path();
  options.durability = Durability::shared;
  const auto run = [&](Version version) -> Result<void> {
    auto store = open(0, 1, options);
    if (!store) return store.error();
    write(*store, version);
    return store->close();
  };
  ASSERT_TRUE(run(1));
  std::filesystem::rename(directory_.path(), behind.path());
  ASSERT_TRUE(run(2));
  std::filesystem::remove_all(directory_.path());
  std::filesystem::rename(behind.path(), directory_.path());
  const auto refused = run(3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
}

TEST_F(StoreInAPool, what_was_reserved_is_timed_like_what_was_copied) {
  Options small;
  small.device_cache = 0;
  Store store = open(0, 1, small).value();
  const Source region{0, nullptr, kBytes};
  auto reserved = store.reserve(1, {&region, 1}).value();
  reserved.commit().value();
  ASSERT_TRUE(store.wait("storage"));
  const Stats stats = store.stats();
  EXPECT_EQ(stats.node->checkpoints_written, 1u);
  EXPECT_GT(stats.node->last_durable_s, 0);
  EXPECT_LT(stats.node->last_durable_s, 3600) << "since the commit, not since the machine started";
}

TEST_F(StoreInAPool, a_checkpoint_that_is_larger_than_the_share_reaches_the_store) {
  Options small;
  small.device_cache = 0;
  small.node_pool = 4 * kMiB;
  Store store = open(0, 1, small).value();
  for (Version version = 0; version < 3; ++version) write(store, version, 0, 9 * kMiB);
  ASSERT_TRUE(store.wait("storage"));
  for (Version version = 0; version < 3; ++version) EXPECT_TRUE(reads(store, version, 0, 9 * kMiB));
}

TEST_F(StoreInAPool, a_process_uses_what_others_do_not_until_they_need_it) {
  constexpr std::size_t kLarge = 4 * kMiB;
  Options large;
  large.device_cache = 0;
  large.node_pool = 160 * kMiB;  // a store touches 32 MiB of its share ahead of need
  large.disk = 4096 * kMiB;
  Store busy = open(0, 2, large).value(), idle = open(1, 2, large).value();
  const auto borrowed = [&] { return busy.stats().node->bytes_borrowed; };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  Version last = 0;
  for (; last < 30 && borrowed() == 0; ++last) write(busy, last, 0, kLarge);
  for (Version small = 1000; borrowed() < 20 * kMiB && std::chrono::steady_clock::now() < until; ++small) {
    write(busy, small, 0);  // who has nothing to be written is lent nothing
    ASSERT_TRUE(busy.wait("storage"));
  }
  EXPECT_GE(borrowed(), 20 * kMiB) << "all but what the other has touched, and a quarter of its share";
  for (const Version end = last + 20; last < end; ++last) write(busy, last, 0, kLarge);

  for (Version version = 0; version < 20; ++version) write(idle, version, 1, kLarge);
  ASSERT_TRUE(idle.wait("storage")) << idle.wait("storage").error().message;
  while (borrowed() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(borrowed(), 0u) << "its process needs it";
  ASSERT_TRUE(busy.wait("storage"));
  for (Version version = 0; version < last; version += 3) EXPECT_TRUE(reads(busy, version, 0, kLarge));
  for (Version version = 0; version < 20; version += 3) EXPECT_TRUE(reads(idle, version, 1, kLarge));
  EXPECT_EQ(busy.stats().failures + idle.stats().failures, 0u);
}

TEST_F(StoreInAPool, retention_and_drops_hold_there_too) {
  Options retained;
  retained.keep_last = 2;
  {
    Store store = open(0, 1, retained).value();
    for (Version version = 0; version < 20; ++version) write(store, version);
    store.wait("storage").value();
    write(store, 5);
    store.wait("storage").value();
    store.drop(5).value();
    store.close().value();
  }
  Store store = open(0, 1, retained).value();
  EXPECT_EQ(store.versions().value(), (std::vector<Version>{18, 19}));
}

TEST_F(StoreInAPool, wait_node_stays_true_when_the_write_fails_and_it_is_tried_again) {
  os::PosixFiles posix;
  const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
  files_ = faulty;
  Store store = open().value();
  faulty->fail_at_rate(doubles::FileCall::write, 1.0, EIO);
  const auto field = bytes_of(1);
  const Future future = store.checkpoint(1, {{0, field.data(), field.size() * 8}}).value();
  EXPECT_EQ(future.wait("storage").error().code, Errc::io_error);
  EXPECT_EQ(store.wait("storage").error().code, Errc::io_error);
  EXPECT_TRUE(future.wait("node"));
  EXPECT_TRUE(store.wait("node"));
  EXPECT_TRUE(reads(store, 1));
  faulty->clear_faults();
  while (!store.wait("storage")) std::this_thread::yield();  // a try of before may be the last that was heard of
  EXPECT_TRUE(future.wait("storage"));
  EXPECT_FALSE(future.error());
}

TEST_F(StoreInAPool, a_wait_for_shared_says_what_failed_on_the_local_disk_that_alone_keeps_it) {
  os::PosixFiles posix;
  const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
  files_ = faulty;
  const OwnDirectory shared;
  Options options;
  options.shared = shared.path();
  options.shared_every = kOnRequest;
  Store store = open(0, 1, options).value();
  faulty->fail_nth(doubles::FileCall::sync, 1, EIO, doubles::FaultyFiles::kEver);
  write(store, 1);
  EXPECT_EQ(testing_support::code_of(store.wait("shared", Seconds(60))), Errc::io_error);
  faulty->clear_faults();
}

TEST_F(StoreInAPool, wait_node_ends_when_no_agent_can_be_started) {
  int opened[2];
  ASSERT_EQ(::pipe(opened), 0);
  const pid_t agent = ::fork();
  if (agent == 0) {
    const auto store = open(0, 2);
    static_cast<void>(!::write(opened[1], "o", 1));
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(opened[0], &byte, 1), 1);
  const int how = in_a_child([&] {
    os::PosixFiles posix;
    const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
    files_ = faulty;
    Store store = open(1, 2).value();
    write(store, 0, 1, kMiB);
    store.wait("storage").value();  // the host cache has its memory
    faulty->fail_at_rate(doubles::FileCall::lock, 1.0, EIO);
    ::kill(agent, SIGKILL);
    // What is in the pool before that is found out is there, and stays there.
    Version version = 0;
    const auto there = [&] {
      write(store, ++version, 1, 4096);
      return store.wait(version, "node");
    };
    while (there()) std::this_thread::yield();
    const auto after = there();
    const bool named =
        !after && after.error().message.find("the node's pool cannot be used any more") != std::string::npos;
    const bool reads_all = reads(store, 1, 1, 4096) && reads(store, version, 1, 4096);
    return named && reads_all ? 0 : 1;
  });
  EXPECT_EQ(how, 0) << "a wait did not end, or not for that reason";
  ::waitpid(agent, nullptr, 0);
}

TEST_F(StoreInAPool, what_a_full_disk_refuses_can_be_dropped_and_makes_room_in_the_pool) {
  os::PosixFiles posix;
  const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
  files_ = faulty;
  Options small;
  small.node_pool = 8 * kMiB;
  Store store = open(0, 1, small).value();
  faulty->fail_at_rate(doubles::FileCall::write, 1.0, ENOSPC);
  std::vector<Version> written;
  for (Version version = 0; version < 40; ++version) {
    const auto field = bytes_of(version);
    const Result<Future> made =
        store.checkpoint(version, {{0, field.data(), field.size() * 8}}, {.timeout = Seconds(1)});
    if (!made) {
      EXPECT_EQ(made.error().code, Errc::no_space) << made.error().message;
      break;
    }
    written.push_back(version);
  }
  ASSERT_LT(written.size(), 40u);
  for (const Version version : written) store.drop(version).value();
  write(store, 100);
  while (!store.wait(100, "node")) std::this_thread::yield();  // the first way that it went may have been the disk
  faulty->clear_faults();
  while (!store.wait("storage")) std::this_thread::yield();
  EXPECT_EQ(store.versions().value(), (std::vector<Version>{100}));
  EXPECT_TRUE(reads(store, 100));
}

// What is larger than the device cache goes straight to a full pool's disk, and is tried again there.
TEST_F(StoreInAPool, a_checkpoint_is_refused_in_time_whatever_the_disk_says) {
  os::PosixFiles posix;
  for (const int error : {ENOSPC, EIO, EFBIG}) {
    const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
    files_ = faulty;
    Options small;
    small.node_pool = 8 * kMiB;
    small.device_cache = kMiB;
    Store store = open(0, 1, small).value();
    faulty->fail_at_rate(doubles::FileCall::write, 1.0, error);
    Version last = 1;
    while (store.checkpoint(last, {{0, bytes_of(last).data(), kBytes}}, {.timeout = Seconds(0.1)}))
      ASSERT_LT(++last, 40);
    EXPECT_FALSE(store.wait("storage"));
    faulty->clear_faults();
    while (!store.wait("storage")) std::this_thread::yield();  // an attempt that has failed may be on its way here
    for (Version version = 1; version < last; ++version) EXPECT_TRUE(reads(store, version));
    store.drop().value();
    store.close().value();
  }
}

TEST_F(StoreInAPool, a_store_that_is_closed_on_a_full_disk_leaves_the_rest_in_the_pool) {
  os::PosixFiles posix;
  const auto faulty = std::make_shared<doubles::FaultyFiles>(posix, 1);
  files_ = faulty;
  {
    Store store = open().value();
    faulty->fail_at_rate(doubles::FileCall::write, 1.0, ENOSPC);
    for (Version version = 0; version < 3; ++version) write(store, version);
    ASSERT_TRUE(store.wait("node"));
    EXPECT_EQ(store.close().error().code, Errc::no_space);
  }
  EXPECT_EQ(open().error().code, Errc::no_space);
  faulty->clear_faults();
  Store store = open().value();
  for (Version version = 0; version < 3; ++version) EXPECT_TRUE(reads(store, version));
}

TEST_F(StoreInAPool, mistakes_are_refused_with_what_was_given_and_what_would_be_right) {
  const auto said = [&](const std::function<void(Options&)>& change, int ranks = 1) {
    Options options;
    change(options);
    const auto opened = open(0, ranks, options);
    return opened ? std::string("opened") : opened.error().message;
  };
  EXPECT_NE(said([](Options& o) { o.node_pool = 3 * kMiB; }, 2).find("two chunks"), std::string::npos);
  EXPECT_NE(said([](Options& o) { o.tuning.node_chunk = 3 << 20; }).find("power of two"), std::string::npos);
  EXPECT_NE(said([](Options& o) { o.host_cache = kMiB; }).find("host_cache=\"1048576\""), std::string::npos);
  EXPECT_NE(said([](Options& o) { o.node_pool = 0; }).find("node_pool"), std::string::npos);
  EXPECT_NE(said([](Options& o) { o.tuning.host_arena = HostArena::direct; }).find("incremental"), std::string::npos);
  Options persistent;
  persistent.durability = Durability::storage;
  persistent.node_pool = 0;
  Store store = open(0, 1, persistent).value();
  EXPECT_EQ(store.wait("node").error().code, Errc::unsupported);
}

TEST_F(StoreInAPool, two_processes_write_one_store_and_keep_apart) {
  const auto work = [&](int rank) {
    Store store = open(rank, 2).value();
    History history = store.history("h", Order::reverse);
    for (Version version = 0; version < 40; ++version) write(history, version, rank);
    for (Version version = 39; version >= 0; --version)
      if (!reads(history, version, rank)) return 1;
    const auto closed = store.close();
    if (!closed) std::cerr << "rank " << rank << ": " << closed.error().message << "\n";
    return closed ? 0 : 2;
  };
  const pid_t other = ::fork();
  if (other == 0) ::_exit(work(1));
  EXPECT_EQ(in_a_child([&] { return work(0); }), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  for (int rank = 0; rank < 2; ++rank) {
    Store store = open(rank, 2).value();
    History history = store.history("h");
    EXPECT_EQ(history.versions().value().size(), 40u);
    EXPECT_TRUE(reads(history, 17, rank));
  }
}

TEST_F(StoreInAPool, a_closed_store_has_left_the_pool_though_its_handle_is_there) {
  Store first = open().value();
  write(first, 1);
  first.close().value();
  Store second = open().value();
  EXPECT_TRUE(reads(second, 1));
}

TEST_F(StoreInAPool, ephemeral_stores_share_its_memory_and_have_files_of_their_own) {
  constexpr std::size_t kLarge = 4 * kMiB;
  Options ephemeral;
  ephemeral.durability = Durability::ephemeral;
  ephemeral.device_cache = 2 * kLarge;
  ephemeral.node_pool = 256 * kMiB;
  std::filesystem::create_directories(directory_.path());
  Store busy = open(0, 2, ephemeral).value(), idle = open(1, 2, ephemeral).value();
  History history = busy.history("h", Order::reverse);
  write(idle, 1, 1);
  Version last = 0;
  while (last < 40) write(history, ++last, 0, kLarge);  // more than its share
  while (busy.stats().node->bytes_borrowed == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  while (last < 60) write(history, ++last, 0, kLarge);
  for (; last > 0; --last) EXPECT_TRUE(reads(history, last, 0, kLarge)) << last;
  EXPECT_TRUE(reads(idle, 1, 1));
  EXPECT_EQ(busy.wait("node").error().code, Errc::unsupported);
  Options persistent = ephemeral;
  persistent.durability = Durability::node;
  const auto other = open(0, 2, persistent);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("is for ephemeral stores"), std::string::npos) << other.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

class StoreInAPoolKilled : public StoreInAPool {};

TEST_F(StoreInAPoolKilled, what_wait_node_has_said_survives_the_process_and_its_agent) {
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(in_a_child([&] {
                Store store = open().value();
                for (Version version = 0; version < 8; ++version) {
                  write(store, round * 10 + version);
                }
                if (!store.wait("node")) return 1;
                ::raise(SIGKILL);
                return 2;
              }),
              128 + SIGKILL);
    Store store = open().value();
    for (Version version = 0; version < 8; ++version) EXPECT_TRUE(reads(store, round * 10 + version));
    store.close().value();
  }
}

}  // namespace
}  // namespace ebb::store
